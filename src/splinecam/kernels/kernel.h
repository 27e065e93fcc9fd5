/* The compiled kernel of SplineCam: arrays in, arrays out; it knows nothing of networks.
 *
 * Faces are convex cells of a planar subdivision. Half-edge 2e runs from the first to the second
 * vertex of edge e and half-edge 2e + 1 runs back; a face is a counter-clockwise cycle of them.
 *
 * The functions return a status. They check the sizes and indices of what they are given, so that
 * malformed arrays give an error rather than a crash. structures.py reads the structures from here.
 */
#pragma once

#include <stdint.h>

#if defined(_WIN32)
#define SC_EXPORT __declspec(dllexport)
#else
#define SC_EXPORT __attribute__((visibility("default")))
#endif

enum sc_status {
    SC_DONE = 0,
    SC_UNCHANGED = 1,      /* no function changes sign along any edge */
    SC_DEGENERATE = 2,     /* features lie too close together: use the robust method */
    SC_TOO_MANY_FACES = 3, /* there would be more faces than allowed */
    SC_NO_MEMORY = -1,
    SC_MALFORMED = -2,     /* sizes or indices that do not fit together */
};

/* A planar subdivision. width is 2, or 3 if a constant third coordinate is carried along. */
typedef struct {
    int64_t vertices, edges, faces, corners, width;
    const double *uv;            /* (vertices, width) */
    const int64_t *edge;         /* (edges, 2) end vertices */
    const int64_t *offset;       /* (faces + 1) first corner of each face */
    const int64_t *corner;       /* (corners) half-edges, face by face */
    const int64_t *edge_layer;   /* (edges) layer that drew the edge */
    const int64_t *edge_unit;    /* (edges) and its unit */
    const int64_t *vertex_layer; /* (vertices) layer that made the vertex */
} sc_mesh;

/* Functions that are affine on every face and vanish at no vertex. */
typedef struct {
    int64_t units;
    const double *z;          /* (vertices, units) */
    const uint64_t *positive; /* (vertices, ceil(units / 64)) where they are positive */
    const double *error;      /* (units) rounding error of z */
    /* (units) difference of the slopes of the result on both sides of zero, or NULL for 1 */
    const double *slope_difference;
    const int64_t *place; /* (vertices) rows of z and of positive, -1 for none; NULL: in order */
    /* (faces) faces that are not cut, though their sides may be divided; or NULL. Written: the same
     * for the faces without chords of the result, which are its first ones, and 0. */
    uint8_t *settled;
} sc_layer;

typedef struct {
    double uv_error;          /* rounding error of a coordinate */
    double safety;            /* tolerances are errors times safety */
    int64_t layer;            /* number of the layer, written as provenance */
    int64_t max_faces;        /* -1: any number */
    int64_t max_chords;       /* of one face */
    int64_t breakpoints_from; /* new vertices from which slope changes are computed; -1: never */
} sc_settings;

/* The refined subdivision and its history: two blocks, which sc_free releases. */
typedef struct {
    void *block, *history;
    int64_t vertices, edges, faces, corners;
    int64_t points;          /* new vertices on edges */
    int64_t chords;          /* new lines through faces */
    int64_t crossings;       /* new vertices inside faces, where chords cross */
    int64_t has_breakpoints; /* whether slope changes were computed */
    /* Breakpoints of the lines of all new vertices on edges, and of those inside faces. */
    int64_t edge_terms, inside_terms;
    double *uv;
    int64_t *edge, *offset, *corner, *edge_layer, *edge_unit, *vertex_layer;
    /* Each new vertex on an edge: the edge and its ends, the fraction along it, the function. */
    int64_t *point_first; /* (old edges + 1) first new vertex of each edge */
    int64_t *point_edge, *point_start, *point_end, *point_unit, *point_index;
    double *point_t, *point_slope_change;
    /* Each crossing: the ends of one of its chords, the fraction, that chord, its slot there. */
    int64_t *cross_start, *cross_end, *cross_chord, *cross_slot;
    double *cross_t;
    /* Slots are the crossings along each chord in order: the other function, and the fraction. */
    int64_t *slot_first; /* (chords + 1) */
    int64_t *slot_unit;
    double *slot_t, *slot_slope_change;
} sc_refined;

/* The range and the signs of rows, found while the rows are in the cache. */
typedef struct {
    int64_t units;       /* 0: nothing is wanted */
    double *tolerance;   /* (units) moduli up to which values count as zero */
    double *low, *high;  /* (units) */
    uint64_t *positive;  /* (rows, words) */
    uint64_t *negative;  /* (rows, words) */
    int64_t zeros;       /* written: whether any value counts as zero */
} sc_sign_range;

/* New rows of a table on lines between older rows, less the slope changes along those lines. */
typedef struct {
    int64_t first;                 /* number of the first new row */
    int64_t count;                 /* of new rows */
    int64_t lines, breakpoints;    /* numbers of them; 0: there are no slope changes */
    const int64_t *p, *q;          /* (count) rows at the ends */
    const double *t;               /* (count) fraction of the line */
    const int64_t *line;           /* (count) line of each row, ascending for SC_SUMS */
    const int64_t *breakpoint;     /* (count) a breakpoint where each row lies, for SC_SUMS */
    const int64_t *offset;         /* (lines + 1) breakpoints of each line */
    const double *breakpoint_t;    /* (breakpoints) fraction of the line */
    const int64_t *unit;           /* (breakpoints) row of `column` */
    const double *slope_change;    /* (breakpoints) */
    const double *column;          /* (units, table width) */
    int64_t units;
} sc_lines;

/* How the values at new vertices are computed. */
enum sc_method {
    SC_DIRECT = 0, /* interpolate the factor, and multiply */
    SC_TERMS = 1,  /* interpolate the products, and add up all slope changes for each vertex */
    SC_SUMS = 2,   /* the same by running sums along each line */
};

/* A dense layer at all vertices, of which the last are new: max(z, 0) @ column + bias.
 *
 * Every unit also gets a bound on its modulus and one on its rounding error: a product rounds once
 * in proportion to the sum of its moduli, and passes on the errors of its factor. */
typedef struct {
    int64_t rows, known;     /* vertices, and those that have z */
    int64_t units, width;    /* columns of z, and of the result */
    int64_t rectified;       /* 0: z itself is multiplied, not its positive part */
    const double *z;         /* (known, units); may be the memory of the result unless SC_DIRECT */
    const double *uv;        /* (rows, uv_width) coordinates, which decide the order of the rows */
    int64_t uv_width;        /* uv may be NULL if neighbouring rows lie close together already */
    const int64_t *before;   /* NULL, or (rows) the row of z at or before each row ... */
    const double *s;         /* ... and (rows) the fraction of the way to the next row of z */
    const int64_t *place;    /* NULL, or (known) the row of z of each vertex, if it has one */
    const int64_t *wanted;   /* NULL, or (rows) the row of the result of each vertex, -1 for none;
                              * then all is SC_DIRECT */
    const double *column;    /* (units, width) */
    const double *bias;      /* (width), or NULL */
    const double *magnitude, *error; /* (units) bounds on the factor */
    double eps, safety;      /* the rounding of a product; tolerances are errors times safety */
    const sc_lines *edges;   /* new vertices on edges, or NULL if there are none */
    const sc_lines *inside;  /* and inside faces, after those */
    int64_t edge_method, inside_method;
    double *bounds;          /* written, (5, width), see sc_bound */
} sc_dense;

/* The rows of `bounds`: modulus and error of the values at the vertices; their error after the next
 * refinement, which interpolates; modulus and error of their positive parts. */
enum sc_bound { SC_MODULUS, SC_ERROR, SC_LATER_ERROR, SC_POSITIVE_MODULUS, SC_POSITIVE_ERROR };

/* Functions at points along segments, in order, that are affine between neighbouring points of a
 * segment and vanish at no point. What is found has a row for every old and every new point. */
typedef struct {
    int64_t rows, units;
    const double *z;          /* (rows, units) */
    const uint64_t *positive; /* (rows, ceil(units / 64)) where they are positive */
    const double *error;      /* (units) rounding error of z */
    const int64_t *segment;   /* (rows) segment of each point */
    const double *t;          /* (rows) position on it */
    double uv_error, safety;  /* rounding error of t; tolerances are errors times safety */
    int64_t *count;           /* written by sc_count_along, (rows): new points after each point */
    const int64_t *offset;    /* (rows) new points before each point */
    int64_t *new_segment, *before; /* written by sc_find_along: segment, and the point before */
    double *new_t, *s;        /* position on the segment, and fraction of the way to the next point */
} sc_crossings;

/* How the value of an affine function follows from those at three vertices of a subdivision: it
 * is that at the first one plus the weighted rises from there to the others. */
typedef struct {
    double second_weight, third_weight;
    int64_t first, second, third;
} sc_fit;

/* The common refinement of two subdivisions of one polygon, and its history: three blocks, which
 * sc_free releases (`fit` is the third). Its vertices are those of the first, those of the second
 * without the corners of the domain, and the crossings of edges of both. */
typedef struct {
    void *block, *history;
    int64_t vertices, edges, faces, corners;
    int64_t crossings;
    double *uv;
    int64_t *edge, *offset, *corner, *edge_layer, *edge_unit, *vertex_layer;
    sc_fit *fit; /* (vertices - crossings) how the other's values follow; nothing at the corners */
    int64_t *first_edge, *second_edge; /* (crossings) the edges that cross, and ... */
    double *first_t, *second_t;        /* ... where on them */
} sc_overlaid;

/* Two functions, each at the vertices of one subdivision, on whose faces it is affine. */
typedef struct {
    int64_t width;                /* numbers per vertex */
    const double *first, *second; /* (vertices of the subdivision, width) */
} sc_affine_pair;

/* Functions of one variable each: a piece begins with `start`, where it has `value`, and goes on to
 * the next level with `slope`. Fewer levels than others are filled up with infinite ones. */
typedef struct {
    int64_t units, levels;
    const double *level;                 /* (levels, units), ascending */
    const double *start, *value, *slope; /* (levels + 1, units) */
} sc_tables;

/* A chain of products and ReLUs in single precision. A panel is PANEL columns of a factor next to
 * each other, (units, PANEL), filled up with zeros. */
typedef struct {
    int64_t products;
    const int64_t *width;   /* (products + 1) numbers before and after each product */
    int64_t columns, rows;  /* numbers of the two arrays of panels */
    const float *column;    /* the panels of each product, (units before it, PANEL) */
    const float *row;       /* and of its transpose but for the first and the last */
    const float *offset;    /* (all widths after the first) what each product adds, and ... */
    const float *norm;      /* ... the norm of its factors, ... */
    const float *rounded;   /* ... and the rounding of what it adds */
    const float *last;      /* (outputs, width) the last factor */
    const float *functions; /* (functions, width) of the last layer, or NULL for the differences
                             * between each output and the one that leads at the centre of a box */
    double single;          /* the rounding of a number, with safety */
} sc_chain;

/* Boxes, and the affine functions that a network is near to on each. */
typedef struct {
    int64_t count, functions;
    const float *inputs; /* (count, 3, units) at the centre, and from there to the right and up */
    float *outputs;      /* written, (count, 3, outputs), likewise */
    float *rounding;     /* written, (count, outputs) */
    float *radius;       /* written, (count, functions) how far noise moves each function */
    float *passed;       /* written, (count) how many units pass zero */
} sc_boxes;

/* Squares on which a chain is reduced to the units that pass zero, or what is left of them on a
 * quarter of a larger square; sc_free_nets releases what is kept of each. */
typedef struct {
    int64_t count, functions, most; /* most: units that may pass zero, about */
    const float *inputs;   /* (count, 3, units) as of boxes */
    const int64_t *parent; /* (count) what is kept of a square, of which each is a quarter, or 0 */
    const double *place;   /* (count, 2) the centre of each in that square, whose sides are -1, 1 */
    float *outputs, *rounding, *radius; /* written, as of boxes */
    float *passed;         /* written, (count) how many units pass zero, -1: too many */
    int64_t *net;          /* written, (count) what is kept */
} sc_reductions;

/* Convex bodies with values at their corners, before the ReLUs of a layer of a chain. */
typedef struct {
    int64_t vertices, cells, layer, units;
    const double *uvw;     /* (vertices, 3) */
    const double *z;       /* (vertices, units) */
    const double *last;    /* (units + 1) if bodies are divided by the last units: what multiplies
                            * these, and an offset; else NULL */
    const int64_t *offset; /* (cells + 1) */
    const int64_t *corner; /* the vertices of all cells */
    double margin;         /* how far from zero the only function of the chain must be */
    uint8_t *open;         /* (cells) those to look at; written: those on which it may vanish */
} sc_bodies;

/* Squares of several sizes, on which functions are near affine ones; see engine/open_part.py. */
typedef struct {
    int64_t functions, first, deepest; /* how often squares are halved, at least and at most */
    int64_t largest;         /* whether it is asked which function is the largest, not for signs */
    int64_t conjunctions;
    const int64_t *start;    /* (conjunctions + 1) of functions that are to be negative, or NULL */
    double corner_u, corner_v, size; /* the square around the domain, to which all is relative */
    const double *centre;    /* (squares, 2) */
    const double *half;      /* (squares) of the side */
    const double *rows;      /* (squares, 3, functions) at the centre; from there right, and up */
    const double *radius;    /* (squares, functions) */
    const uint8_t *settled;  /* (squares) */
    const int32_t *finest;   /* level by level, the smallest square at each row and column */
} sc_squares;

/* Points at which a question is settled by squares, and the outputs there. */
typedef struct {
    int64_t count, width;
    const int64_t *row; /* (count) where they are in the two tables */
    const double *uv;   /* (points, 2) */
    const double *rows; /* (squares, 3, width) of the outputs, as of the functions of the squares */
    double *values;     /* (points, width) written; no numbers where the question is open */
} sc_settled_points;

/* A complex in three dimensions. A face is a cycle of half-edges; side 2f of a cell is face f if its
 * cycle is counter-clockwise seen from outside of the cell, 2f + 1 if it is clockwise. */
typedef struct {
    int64_t vertices, edges, faces, corners, cells, sides;
    const int64_t *edge;        /* (edges, 2) end vertices */
    const int64_t *edge_layer;  /* (edges) what made the face in which it was drawn */
    const int64_t *face_offset; /* (faces + 1) */
    const int64_t *corner;      /* (corners) half-edges, face by face */
    const int64_t *face_layer;  /* (faces) layer that made the face */
    const int64_t *face_unit;   /* (faces) and its unit */
    const int64_t *cell_offset; /* (cells + 1) */
    const int64_t *side;        /* (sides) cell by cell */
} sc_solid;

/* Functions that are affine on every cell. */
typedef struct {
    int64_t units;
    const double *z;         /* (vertices, units) */
    const double *tolerance; /* (units) moduli up to which values count as zero */
    const int64_t *label;    /* (units) written as the units of new faces */
} sc_zero_sets;

/* The complex after a cut. sc_free releases each of its arrays. */
typedef struct {
    int64_t vertices, edges, faces, corners, cells, sides, points, uncuts;
    int64_t bounded, dropped; /* pieces of cells whose bounds were found, and that were left out */
    int64_t *kept; /* (vertices) which of the old vertices, and of the points behind them, are left */
    int64_t *edge, *edge_layer, *face_offset, *corner, *face_layer, *face_unit, *cell_offset, *side;
    int64_t *parent; /* (cells) the cell of which each is a part */
    int64_t *point;  /* (points, 3) new vertices: the ends of a line, and the function zero there */
    double *t;       /* (points) the fraction of that line */
    int64_t *uncut;  /* (uncuts) cells in which rounding leaves open where a function vanishes */
} sc_cut;

/* Rows of old vertices, and the vertices of which rows are wanted, as in sc_cut. */
typedef struct {
    int64_t vertices, points, count, width;
    const double *row;    /* (vertices, width) */
    const int64_t *point; /* (points, 3) */
    const double *t;      /* (points) */
    const int64_t *kept;  /* (count) */
} sc_rows;

typedef struct sc_pool sc_pool;

SC_EXPORT int64_t sc_version(void);
SC_EXPORT sc_pool *sc_pool_new(int64_t threads);
SC_EXPORT void sc_pool_free(sc_pool *pool);
SC_EXPORT void sc_free(void *block);
SC_EXPORT int sc_refine(sc_pool *pool, const sc_mesh *mesh, const sc_layer *layer,
                        const sc_settings *settings, sc_refined *refined);
SC_EXPORT int sc_overlay(sc_pool *pool, const sc_mesh *first, const sc_mesh *second, int64_t layers,
                         int64_t corners, double slack, int64_t max_faces, sc_overlaid *made);
SC_EXPORT int sc_overlay_values(sc_pool *pool, const sc_mesh *first, const sc_mesh *second,
                                int64_t corners, const sc_overlaid *made,
                                const sc_affine_pair *pair, double *table);
SC_EXPORT int sc_scan(sc_pool *pool, const double *table, int64_t rows, int64_t begin, int64_t end,
                      sc_sign_range *sign_range);
SC_EXPORT int sc_fill(sc_pool *pool, double *table, int64_t rows, int64_t width,
                      const sc_lines *lines, int64_t method, sc_sign_range *sign_range);
SC_EXPORT int sc_count_along(sc_pool *pool, const sc_crossings *crossings);
SC_EXPORT int sc_find_along(sc_pool *pool, const sc_crossings *crossings);
SC_EXPORT int sc_rows_between(sc_pool *pool, const double *table, int64_t rows, int64_t width,
                              const int64_t *before, const double *s, int64_t count,
                              int64_t rectified, double *out);
SC_EXPORT int sc_table_values(sc_pool *pool, const sc_tables *tables, const double *z, int64_t rows,
                              double *out);
SC_EXPORT int sc_bound_boxes(sc_pool *pool, const sc_chain *chain, sc_boxes *boxes);
SC_EXPORT int sc_reduce_squares(sc_pool *pool, const sc_chain *chain, const sc_reductions *given);
SC_EXPORT void sc_free_nets(const int64_t *net, int64_t count);
SC_EXPORT int sc_bound_bodies(sc_pool *pool, const sc_chain *chain, const sc_bodies *bodies);
/* open: (faces) those to look at; written: those of them on which the question is open. */
SC_EXPORT int sc_open_faces(sc_pool *pool, const sc_mesh *mesh, const sc_squares *squares,
                            uint8_t *open);
SC_EXPORT int sc_settled_values(sc_pool *pool, const sc_squares *squares,
                                const sc_settled_points *points);
/* row: written, (vertices) the number of each corner of faces that are not settled, else -1; and
 * how many there are. */
SC_EXPORT int sc_open_corners(sc_pool *pool, const sc_mesh *mesh, const uint8_t *settled,
                              int64_t *row, int64_t *count);
SC_EXPORT int sc_dense_layer(sc_pool *pool, const sc_dense *dense, double *table,
                             sc_sign_range *sign_range);
/* chain, bodies: what bounds a function on cells, or NULL; bodies has uvw and z of the vertices. Cells
 * on which it cannot vanish are left out. */
SC_EXPORT int sc_cut_solid(sc_pool *pool, const sc_solid *solid, const sc_zero_sets *zero,
                           int64_t layer, const sc_chain *chain, const sc_bodies *bodies,
                           sc_cut *made);
/* out: written, (count, width); those of points are (1 - t) p + t q. */
SC_EXPORT int sc_gather_rows(sc_pool *pool, const sc_rows *rows, double *out);
SC_EXPORT int sc_cell_corners(const sc_solid *solid, int64_t *offset, int64_t *out);

// The programs of the graphics card, in GLSL ES 3.00.
//
// `place` maps local coordinates to clip space: clip = local * place.xy + place.zw. It is computed in
// double precision. Colours are premultiplied by their opacity.

/** Cells of one colour each. */
export const FLAT = {
  vertex: `
layout(location = 0) in vec2 at;
layout(location = 1) in vec4 paint;
uniform vec4 place;
flat out vec4 color;
void main() {
  color = vec4(paint.rgb * paint.a, paint.a);
  gl_Position = vec4(at * place.xy + place.zw, 0, 1);
}`,
  fragment: `
flat in vec4 color;
out vec4 result;
void main() { result = color; }`,
};

/** Cells on which a number is linear; the number is looked up in a table of colours.
 *
 * A number is given such that a linear scale goes from 0 to 1. On a logarithmic scale it is a
 * multiple of the lower end, and \`rate\` is 1 / log(upper / lower end); on a centred scale it is 0
 * in the middle and 1 at the upper end, and \`rate\` is the share of the upper part in the lower. */
export const SHADED = {
  vertex: `
layout(location = 0) in vec2 at;
layout(location = 1) in float number;
uniform vec4 place;
out float value;
void main() {
  value = number;
  gl_Position = vec4(at * place.xy + place.zw, 0, 1);
}`,
  fragment: `
in float value;
uniform sampler2D table;
uniform int scale;
uniform float rate;
out vec4 result;
void main() {
  float t = value;
  if (scale == 1) {
    if (t <= 0.0) discard;
    t = log(t) * rate;
  } else if (scale == 2) {
    t = 0.5 + 0.5 * (t < 0.0 ? t * rate : t);
  }
  result = texelFetch(table, ivec2(clamp(int(floor(t * 256.0)), 0, 255), 0), 0);
}`,
};

/** How much of a pixel a segment covers. */
const COVER = `
  float beyond = max(max(-across.y, across.y - across.z), 0.0);
  // Round ends are half a pixel smaller, so that joints are not darker than the lines.
  float off = length(vec2(across.x, beyond)) + min(beyond, 0.5);
  float cover = clamp(0.5 * max(width, 1.0) + 0.5 - off, 0.0, 1.0) * min(width, 1.0);`;

/** Segments with smooth sides, four vertices each, whose ends are in a texture.
 *
 * Lines thinner than a pixel are drawn a pixel wide and paler. Without caps, segments that continue
 * each other meet without overlap, so that transparent lines have no dots at their joints. */
export const LINES = {
  vertex: `
uniform sampler2D ends;
uniform int first;
uniform vec4 place;
uniform vec2 halfSize;
uniform float width;
uniform float caps;
out vec3 across;
void main() {
  int k = first + (gl_VertexID >> 2);
  vec4 end = texelFetch(ends, ivec2(k & 2047, k >> 11), 0);
  vec2 a = (end.xy * place.xy + place.zw) * halfSize;
  vec2 b = (end.zw * place.xy + place.zw) * halfSize;
  vec2 along = b - a;
  float span = length(along);
  along = span > 0.0 ? along / span : vec2(1, 0);
  float reach = 0.5 * max(width, 1.0) + 0.5;
  float side = (gl_VertexID & 1) == 0 ? -reach : reach;
  bool far = (gl_VertexID & 2) != 0;
  float over = far ? caps * reach : -caps * reach;
  across = vec3(side, (far ? span : 0.0) + over, span);
  vec2 corner = (far ? b : a) + along * over + vec2(-along.y, along.x) * side;
  gl_Position = vec4(corner / halfSize, 0, 1);
}`,
  fragment: `
in vec3 across;
uniform float width;
uniform vec4 color;
out vec4 result;
void main() {
${COVER}
  result = color * cover;
}`,
};

/** The same with gaps, in a program of its own: lines without gaps take a third longer in it. */
export const DASHES = {
  vertex: LINES.vertex,
  fragment: `
in vec3 across;
uniform float width;
uniform vec4 color;
uniform vec2 dash;
out vec4 result;
void main() {
${COVER}
  float gap = abs(fract(across.y / dash.y) - 0.5) * dash.y;
  result = color * (cover * clamp(0.5 * dash.x + 0.5 - gap, 0.0, 1.0));
}`,
};

/** A part of a texture on a rectangle of clip space. */
export const IMAGE = {
  vertex: `
uniform vec4 rectangle;
uniform vec4 part;
out vec2 at;
void main() {
  vec2 corner = vec2(gl_VertexID & 1, gl_VertexID >> 1);
  at = mix(part.xy, part.zw, corner);
  gl_Position = vec4(mix(rectangle.xy, rectangle.zw, corner), 0, 1);
}`,
  fragment: `
in vec2 at;
uniform sampler2D image;
uniform float opacity;
out vec4 result;
void main() { result = texture(image, at) * opacity; }`,
};

/** One colour on triangles. */
export const PLAIN = {
  vertex: `
layout(location = 0) in vec2 at;
uniform vec4 place;
void main() { gl_Position = vec4(at * place.xy + place.zw, 0, 1); }`,
  fragment: `
uniform vec4 color;
out vec4 result;
void main() { result = color; }`,
};

/** One colour on triangles, with lines across them: `hatch` is their width, from line to line, and
 * where one of them is; `opacity` that of the area between the lines, and of the lines. */
export const HATCHED = {
  vertex: PLAIN.vertex,
  fragment: `
uniform vec3 color;
uniform vec2 opacity;
uniform vec3 hatch;
out vec4 result;
void main() {
  float across = (gl_FragCoord.x - gl_FragCoord.y) * 0.70710678 - hatch.z;
  float off = abs(fract(across / hatch.y + 0.5) - 0.5) * hatch.y;
  float line = clamp(0.5 * hatch.x + 0.5 - off, 0.0, 1.0);
  result = vec4(color, 1) * mix(opacity.x, opacity.y, line);
}`,
};

/** Discs with a rim; hollow ones have the paper's colour inside and their own on the rim. */
export const POINTS = {
  vertex: `
layout(location = 0) in vec2 at;
layout(location = 1) in vec4 paint;
uniform vec4 place;
uniform float size;
uniform vec3 paper;
uniform vec2 rims;
flat out vec3 inside;
flat out vec3 rim;
flat out vec2 radii;
void main() {
  bool hollow = paint.a < 0.5;
  inside = hollow ? paper : paint.rgb;
  rim = hollow ? paint.rgb : paper;
  float wide = hollow ? rims.y : rims.x;
  radii = vec2(0.5 * size - 0.5 * wide, 0.5 * size + 0.5 * wide);
  gl_Position = vec4(at * place.xy + place.zw, 0, 1);
  gl_PointSize = 2.0 * radii.y + 2.0;
}`,
  fragment: `
flat in vec3 inside;
flat in vec3 rim;
flat in vec2 radii;
out vec4 result;
void main() {
  float off = length(gl_PointCoord - 0.5) * (2.0 * radii.y + 2.0);
  vec3 color = mix(inside, rim, clamp(off - radii.x + 0.5, 0.0, 1.0));
  result = vec4(color, 1) * clamp(radii.y + 0.5 - off, 0.0, 1.0);
}`,
};

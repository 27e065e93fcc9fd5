// The programs that draw polygons in space.
//
// Each corner of a face draws the triangle of its edge and the middle of the face. A number that is 1
// in the middle and 0 at the corners is linear on the triangle, and tells how far the edge is: lines
// are smooth at any zoom without being drawn on their own. What belongs to the triangle is that of
// its last vertex, where the edge begins.

export const FACETS = {
  vertex: `
uniform mat4 u_matrix;
uniform vec3 u_eye;
uniform float u_focus; // pixels of a length that is as far as it is long
uniform highp sampler2D u_lines;
layout(location = 0) in vec4 a_place; // and the value
layout(location = 1) in vec2 a_kind; // 1 in the middle, and the layer
layout(location = 2) in float a_size;
layout(location = 3) in vec3 a_color;
layout(location = 4) in uint a_face;
out vec3 v_place;
out float v_height;
out float v_value;
flat out vec3 v_color;
flat out vec4 v_line;
flat out float v_width;
flat out float v_face;
void main() {
  v_height = a_kind.x;
  v_place = a_place.xyz;
  v_value = a_place.w;
  v_color = a_color;
  int layer = int(a_kind.y + 0.5);
  vec2 style = texelFetch(u_lines, ivec2(layer, 1), 0).xy;
  v_line = texelFetch(u_lines, ivec2(layer, 0), 0);
  // Lines around a face that is hardly larger than they are would hide it.
  float pixels = a_size * u_focus / max(distance(u_eye, a_place.xyz), 1e-6);
  v_line.a *= mix(1.0, smoothstep(1.5, 8.0, pixels), style.y);
  v_width = layer > 1 ? min(style.x, 0.12 * pixels + 0.25) : style.x;
  v_face = float(a_face);
  gl_Position = u_matrix * vec4(a_place.xyz, 1.0);
}`,
  fragment: `
uniform vec3 u_eye;
uniform mat4 u_turn; // from the box to the eye
uniform vec4 u_cut; // normal and offset of what is cut away; 0 0 0 0: nothing
uniform vec4 u_picked; // the face that is pointed at, and a colour
uniform float u_flat; // 1: a plane, which shows its values
uniform vec2 u_range; // the smallest and the largest value
uniform vec3 u_below;
uniform vec3 u_above;
uniform vec3 u_paper;
uniform vec4 u_level; // the colour and the width of the level
uniform vec3 u_back; // the colour of what lies behind the surface
in vec3 v_place;
in float v_height;
in float v_value;
flat in vec3 v_color;
flat in vec4 v_line;
flat in float v_width;
flat in float v_face;
out vec4 color;

float steep(float x) { return max(length(vec2(dFdx(x), dFdy(x))), 1e-12); }

vec3 lit(vec3 base) {
  bool behind = !gl_FrontFacing;
  vec3 normal = mat3(u_turn) * normalize(cross(dFdx(v_place), dFdy(v_place)));
  vec3 eye = mat3(u_turn) * normalize(u_eye - v_place);
  if (behind) base = mix(base, u_back, 0.65);
  vec3 key = normalize(vec3(-0.42, 0.66, 0.62));
  vec3 fill = normalize(vec3(0.75, -0.05, 0.55));
  float light = 0.34 + 0.14 * normal.y;
  light += 0.62 * max(0.0, (dot(normal, key) + 0.15) / 1.15);
  light += 0.16 * max(0.0, dot(normal, fill));
  float shine = pow(max(0.0, dot(normal, normalize(key + eye))), 48.0) * (behind ? 0.0 : 0.10);
  float rim = pow(1.0 - abs(dot(normal, eye)), 3.0);
  vec3 linear = pow(base, vec3(2.2)) * (light * (1.0 - 0.22 * rim)) + shine;
  return pow(min(linear, 1.0), vec3(1.0 / 2.2));
}

// A plane is opaque inside of the surface, and elsewhere one sees what lies behind it.
vec4 valued() {
  float most = v_value < 0.0 ? -u_range.x : u_range.y;
  float share = sqrt(clamp(abs(v_value) / max(most, 1e-30), 0.0, 1.0));
  if (v_value < 0.0) return vec4(mix(u_paper, u_below, 0.3 + 0.6 * share), 1.0);
  return vec4(mix(u_paper, u_above, 0.2 + 0.5 * share), 0.3 + 0.35 * share);
}

void main() {
  float off = dot(u_cut.xyz, v_place) - u_cut.w;
  if (u_flat < 0.5 && off > 0.0) discard;
  vec4 found = u_flat > 0.5 ? valued() : vec4(lit(v_color), 1.0);
  bool picked = abs(v_face - u_picked.x) < 0.5;
  if (picked) found = mix(found, vec4(u_picked.yzw, 1.0), 0.45);
  float far = v_height / steep(v_height);
  float width = picked ? max(v_width, 1.2) : v_width;
  float line = clamp(0.5 + width - far, 0.0, 1.0) * (picked ? 1.0 : v_line.a);
  found = mix(found, vec4(picked ? u_picked.yzw : v_line.rgb, 1.0), line);
  if (u_flat > 0.5) {
    float level = abs(v_value) / steep(v_value);
    found = mix(found, vec4(u_level.rgb, 1.0), clamp(0.5 + u_level.w - level, 0.0, 1.0));
  }
  color = vec4(found.rgb * found.a, found.a);
}`,
};

/** Lines of one pixel, such as the edges of the box. */
export const WIRE = {
  vertex: `
uniform mat4 u_matrix;
layout(location = 0) in vec3 a_place;
void main() { gl_Position = u_matrix * vec4(a_place, 1.0); }`,
  fragment: `
uniform vec4 u_ink;
out vec4 color;
void main() { color = vec4(u_ink.rgb * u_ink.a, u_ink.a); }`,
};

// What is made on the graphics card: programs, buffers, textures.

import { DASHES, FLAT, HATCHED, IMAGE, LINES, PLAIN, POINTS, SHADED } from "./shaders";

export type GL = WebGL2RenderingContext;

const HEAD = "#version 300 es\nprecision highp float;\nprecision highp int;\n";
/** How many quads can be drawn at once: their corners are numbered in 16 bits. */
export const QUADS = 16384;

/** A program and where its uniforms are. */
export class Program {
  private readonly program: WebGLProgram;
  private readonly places = new Map<string, WebGLUniformLocation | null>();
  private checked = false;

  constructor(
    private readonly gl: GL,
    source: { vertex: string; fragment: string },
  ) {
    this.program = gl.createProgram();
    for (const [type, text] of [
      [gl.VERTEX_SHADER, source.vertex],
      [gl.FRAGMENT_SHADER, source.fragment],
    ] as const) {
      const shader = gl.createShader(type)!;
      gl.shaderSource(shader, HEAD + text);
      gl.compileShader(shader);
      gl.attachShader(this.program, shader);
      gl.deleteShader(shader); // it lives as long as the program
    }
    gl.linkProgram(this.program);
  }

  /** Use the program with some uniforms: numbers, lists of two to four numbers, or of sixteen. */
  use(uniforms: Record<string, number | readonly number[]>): this {
    this.check();
    this.gl.useProgram(this.program);
    for (const name in uniforms) this.set(name, uniforms[name]!);
    return this;
  }

  set(name: string, value: number | readonly number[]): void {
    const { gl } = this;
    const at = this.at(name);
    if (typeof value === "number") gl.uniform1f(at, value);
    else if (value.length === 2) gl.uniform2f(at, value[0]!, value[1]!);
    else if (value.length === 3) gl.uniform3f(at, value[0]!, value[1]!, value[2]!);
    else if (value.length === 4) gl.uniform4f(at, value[0]!, value[1]!, value[2]!, value[3]!);
    else gl.uniformMatrix4fv(at, false, value);
  }

  /** Throw an error if the driver refuses the program; asked late, since it waits for the driver. */
  private check(): void {
    const { gl, program } = this;
    if (this.checked) return;
    this.checked = true;
    if (gl.getProgramParameter(program, gl.LINK_STATUS) || gl.isContextLost()) return;
    const reason = gl.getProgramInfoLog(program) || "no reason was given";
    throw new Error(`The graphics driver refused a program of the viewer (${reason}).`);
  }

  setInteger(name: string, value: number): void {
    this.gl.uniform1i(this.at(name), value);
  }

  private at(name: string): WebGLUniformLocation | null {
    let at = this.places.get(name);
    if (at === undefined) {
      at = this.gl.getUniformLocation(this.program, name);
      this.places.set(name, at);
    }
    return at;
  }
}

/** All programs, and the corners of quads. */
export class Programs {
  /** The first picture needs these two. */
  readonly image: Program;
  readonly lines: Program;
  /** Numbers the corners of QUADS quads; has no attributes. */
  readonly quads: WebGLVertexArrayObject;
  readonly maxTexture: number;
  private readonly others = new Map<object, Program>();

  constructor(readonly gl: GL) {
    this.image = new Program(gl, IMAGE);
    this.lines = new Program(gl, LINES);
    this.maxTexture = gl.getParameter(gl.MAX_TEXTURE_SIZE) || 2048;
    const corners = new Uint16Array(6 * QUADS);
    for (let k = 0; k < QUADS; k++) {
      [0, 1, 2, 2, 1, 3].forEach((corner, j) => {
        corners[6 * k + j] = 4 * k + corner;
      });
    }
    this.quads = gl.createVertexArray();
    gl.bindVertexArray(this.quads);
    gl.bindBuffer(gl.ELEMENT_ARRAY_BUFFER, gl.createBuffer());
    gl.bufferData(gl.ELEMENT_ARRAY_BUFFER, corners, gl.STATIC_DRAW);
    gl.bindVertexArray(null);
    gl.pixelStorei(gl.UNPACK_ALIGNMENT, 1);
    gl.blendFunc(gl.ONE, gl.ONE_MINUS_SRC_ALPHA);
  }

  get shaded(): Program {
    return this.other(SHADED);
  }

  get dashes(): Program {
    return this.other(DASHES);
  }

  get flat(): Program {
    return this.other(FLAT);
  }

  get plain(): Program {
    return this.other(PLAIN);
  }

  get hatched(): Program {
    return this.other(HATCHED);
  }

  get points(): Program {
    return this.other(POINTS);
  }

  /** A program that is made when it is first needed. */
  private other(source: { vertex: string; fragment: string }): Program {
    const program = this.others.get(source) ?? new Program(this.gl, source);
    this.others.set(source, program);
    return program;
  }
}

/** A texture without mipmaps, of a format of the constants of WebGL2. */
export function textureOf(gl: GL, size: [number, number], format: number, filter: number) {
  const texture = gl.createTexture();
  gl.bindTexture(gl.TEXTURE_2D, texture);
  gl.texStorage2D(gl.TEXTURE_2D, 1, format, size[0], size[1]);
  gl.texParameteri(gl.TEXTURE_2D, gl.TEXTURE_MIN_FILTER, filter);
  gl.texParameteri(gl.TEXTURE_2D, gl.TEXTURE_MAG_FILTER, filter);
  gl.texParameteri(gl.TEXTURE_2D, gl.TEXTURE_WRAP_S, gl.CLAMP_TO_EDGE);
  gl.texParameteri(gl.TEXTURE_2D, gl.TEXTURE_WRAP_T, gl.CLAMP_TO_EDGE);
  return texture;
}

/** A buffer for an attribute at a location of the bound vertex array. */
export function attribute(
  gl: GL,
  location: number,
  [size, type, normalized]: readonly [number, number, boolean],
  data: ArrayBufferView | number,
): WebGLBuffer {
  const buffer = gl.createBuffer();
  gl.bindBuffer(gl.ARRAY_BUFFER, buffer);
  if (typeof data === "number") gl.bufferData(gl.ARRAY_BUFFER, data, gl.STATIC_DRAW);
  else gl.bufferData(gl.ARRAY_BUFFER, data, gl.STATIC_DRAW);
  gl.enableVertexAttribArray(location);
  gl.vertexAttribPointer(location, size, type, normalized, 0, 0);
  return buffer;
}

// Vectors of three numbers, and matrices of sixteen, column after column.

export type Vec3 = readonly [number, number, number];

export const add = (a: Vec3, b: Vec3): Vec3 => [a[0] + b[0], a[1] + b[1], a[2] + b[2]];
export const minus = (a: Vec3, b: Vec3): Vec3 => [a[0] - b[0], a[1] - b[1], a[2] - b[2]];
export const times = (a: Vec3, t: number): Vec3 => [a[0] * t, a[1] * t, a[2] * t];
export const dot = (a: Vec3, b: Vec3): number => a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
export const cross = (a: Vec3, b: Vec3): Vec3 => [
  a[1] * b[2] - a[2] * b[1],
  a[2] * b[0] - a[0] * b[2],
  a[0] * b[1] - a[1] * b[0],
];
export const length = (a: Vec3): number => Math.hypot(...a);

/** The vector of length 1 in the same direction; zero stays. */
export function unit(a: Vec3): Vec3 {
  const size = length(a);
  return size > 0 ? times(a, 1 / size) : a;
}

/** The numbers of a row of an array. */
export function row(array: ArrayLike<number>, k: number): Vec3 {
  return [array[3 * k]!, array[3 * k + 1]!, array[3 * k + 2]!];
}

/** A vector along the axis of a number. */
export function axis(k: number): Vec3 {
  return [Number(k === 0), Number(k === 1), Number(k === 2)];
}

export type Matrix = Float32Array;

/** The product of two matrices. */
export function product(a: Matrix, b: Matrix): Matrix {
  const result = new Float32Array(16);
  for (let column = 0; column < 4; column++) {
    for (let line = 0; line < 4; line++) {
      let sum = 0;
      for (let k = 0; k < 4; k++) sum += a[4 * k + line]! * b[4 * column + k]!;
      result[4 * column + line] = sum;
    }
  }
  return result;
}

// What the build makes of files that are no scripts.

/** The bytes of a file. */
declare module "*.wasm" {
  const bytes: Uint8Array<ArrayBuffer>;
  export default bytes;
}

/** A script with all that it imports, as text. */
declare module "*?text" {
  const code: string;
  export default code;
}

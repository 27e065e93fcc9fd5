// What the build makes of files that are no scripts.

/** The bytes of a file. */
declare module "*.wasm" {
  const bytes: Uint8Array<ArrayBuffer>;
  export default bytes;
}

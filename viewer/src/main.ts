// The entry of the bundle: a page starts by itself, a notebook calls `render`.

export default {};

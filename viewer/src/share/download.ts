// Hand a file to the browser, which saves it.

const KEPT = 60_000; // milliseconds, as browsers read the file after the click

/** Save a file under a name. */
export function download(content: Blob, name: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(content);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), KEPT);
}

/** A file name from a title: letters, digits and hyphens. */
export function fileName(title: string, ending: string): string {
  const words = title
    .normalize("NFKD")
    .toLowerCase()
    .replace(/[^a-z0-9]+/g, "-");
  const stem = words
    .replace(/^-+|-+$/g, "")
    .slice(0, 60)
    .replace(/-+$/, "");
  return `${stem || "splinecam"}.${ending}`;
}

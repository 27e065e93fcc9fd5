// The checksum CRC-32 of zip and PNG, eight bytes at a time.

let tables: Int32Array[] | null = null;

/** Table k holds what a byte contributes that is followed by k zero bytes. */
function contributions(): Int32Array[] {
  if (tables) return tables;
  const first = new Int32Array(256);
  for (let byte = 0; byte < 256; byte++) {
    let remainder = byte;
    for (let bit = 0; bit < 8; bit++) {
      remainder = remainder & 1 ? (remainder >>> 1) ^ 0xedb88320 : remainder >>> 1;
    }
    first[byte] = remainder;
  }
  const made = [first];
  for (let k = 1; k < 8; k++) {
    const before = made[k - 1]!;
    made.push(before.map((value) => (value >>> 8) ^ first[value & 255]!));
  }
  tables = made;
  return made;
}

/** The CRC-32 of all bytes, as an unsigned number. */
export function crc32(bytes: Uint8Array): number {
  const [t0, t1, t2, t3, t4, t5, t6, t7] = contributions() as [
    ...[Int32Array, Int32Array, Int32Array, Int32Array],
    ...[Int32Array, Int32Array, Int32Array, Int32Array],
  ];
  let crc = -1;
  let at = 0;
  for (const whole = bytes.length - 7; at < whole; at += 8) {
    crc ^= bytes[at]! | (bytes[at + 1]! << 8) | (bytes[at + 2]! << 16) | (bytes[at + 3]! << 24);
    crc =
      t7[crc & 255]! ^
      t6[(crc >>> 8) & 255]! ^
      t5[(crc >>> 16) & 255]! ^
      t4[crc >>> 24]! ^
      t3[bytes[at + 4]!]! ^
      t2[bytes[at + 5]!]! ^
      t1[bytes[at + 6]!]! ^
      t0[bytes[at + 7]!]!;
  }
  for (; at < bytes.length; at++) crc = t0[(crc ^ bytes[at]!) & 255]! ^ (crc >>> 8);
  return ~crc >>> 0;
}

// A network as an ONNX file and as PyTorch code.

import type { Activation, Layer, Network } from "./network";

/** The bytes of a field of Protocol Buffers. */
type Bytes = number[];

function varint(value: number): Bytes {
  const bytes: Bytes = [];
  for (let rest = value; ; rest = Math.floor(rest / 128)) {
    if (rest < 128) return [...bytes, rest];
    bytes.push((rest % 128) + 128);
  }
}

function bytesField(field: number, bytes: ArrayLike<number>): Bytes {
  return [...varint(8 * field + 2), ...varint(bytes.length), ...Array.from(bytes)];
}

function textField(field: number, words: string): Bytes {
  return bytesField(field, new TextEncoder().encode(words));
}

function numberField(field: number, value: number): Bytes {
  return [...varint(8 * field), ...varint(value)];
}

const [DOUBLE, INT64] = [11, 7];

function tensor(name: string, dims: number[], data: Float64Array | BigInt64Array): Bytes {
  const raw = new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
  return [
    ...dims.flatMap((dim) => numberField(1, dim)),
    ...numberField(2, data instanceof Float64Array ? DOUBLE : INT64),
    ...textField(8, name),
    ...bytesField(9, raw),
  ];
}

function node(type: string, inputs: string[], output: string, attributes: Bytes[] = []): Bytes {
  return [
    ...inputs.flatMap((name) => textField(1, name)),
    ...textField(2, output),
    ...textField(3, output),
    ...textField(4, type),
    ...attributes.flatMap((attribute) => bytesField(5, attribute)),
  ];
}

function floatAttribute(name: string, value: number): Bytes {
  const raw = new Uint8Array(Float32Array.of(value).buffer);
  return [...textField(1, name), ...varint(8 * 2 + 5), ...raw, ...numberField(20, 1)];
}

function intAttribute(name: string, value: number): Bytes {
  return [...textField(1, name), ...numberField(3, value), ...numberField(20, 2)];
}

function valueInfo(name: string, width: number): Bytes {
  const batch = bytesField(1, textField(2, "N"));
  const shape = [...batch, ...bytesField(1, numberField(1, width))];
  const type = bytesField(1, [...numberField(1, DOUBLE), ...bytesField(2, shape)]);
  return [...textField(1, name), ...bytesField(2, type)];
}

/** The nodes of an activation, from one name to another, and the constants that they need. */
function activationNodes(
  activation: Activation,
  units: number,
  from: string,
  to: string,
): { nodes: Bytes[]; constants: Bytes[] } {
  const simple = { relu: "Relu", abs: "Abs", tanh: "Tanh", gelu: "Gelu" } as const;
  if (activation.name in simple) {
    const type = simple[activation.name as keyof typeof simple];
    return { nodes: [node(type, [from], to)], constants: [] };
  }
  if (activation.name === "leaky") {
    const alpha = floatAttribute("alpha", activation.slope);
    return { nodes: [node("LeakyRelu", [from], to, [alpha])], constants: [] };
  }
  if (activation.name === "clip") {
    const ends = { [`${to}_low`]: activation.low, [`${to}_high`]: activation.high };
    const constants = Object.entries(ends).map(([n, x]) => tensor(n, [], Float64Array.of(x)));
    return { nodes: [node("Clip", [from, ...Object.keys(ends)], to)], constants };
  }
  const shape = tensor(`${to}_shape`, [3], BigInt64Array.of(-1n, BigInt(units / 2), 2n));
  const axes = tensor(`${to}_axes`, [1], BigInt64Array.of(2n));
  const nodes = [
    node("Reshape", [from, `${to}_shape`], `${to}_pairs`),
    node("ReduceMax", [`${to}_pairs`, `${to}_axes`], to, [intAttribute("keepdims", 0)]),
  ];
  return { nodes, constants: [shape, axes] };
}

/** The bytes of an ONNX file, in double precision. */
export function onnxOf({ layers }: Network): Uint8Array<ArrayBuffer> {
  const nodes: Bytes[] = [];
  const constants: Bytes[] = [];
  let name = "input";
  layers.forEach(({ inputs, units, weight, bias, activation }, k) => {
    constants.push(tensor(`weight${k}`, [inputs, units], weight));
    constants.push(tensor(`bias${k}`, [units], bias));
    const linear = k + 1 === layers.length ? "output" : `dense${k}`;
    nodes.push(node("Gemm", [name, `weight${k}`, `bias${k}`], linear));
    name = linear;
    if (activation.name === "linear") return;
    const made = activationNodes(activation, units, linear, `layer${k}`);
    nodes.push(...made.nodes);
    constants.push(...made.constants);
    name = `layer${k}`;
  });
  const graph = [
    ...nodes.flatMap((each) => bytesField(1, each)),
    ...textField(2, "playground"),
    ...constants.flatMap((each) => bytesField(5, each)),
    ...bytesField(11, valueInfo("input", layers[0]!.inputs)),
    ...bytesField(12, valueInfo("output", layers.at(-1)!.units)),
  ];
  const opset = numberField(2, 20);
  const model = [...numberField(1, 9), ...textField(2, "splinecam")];
  return Uint8Array.from([...model, ...bytesField(7, graph), ...bytesField(8, opset)]);
}

function moduleOf(activation: Activation): string | null {
  switch (activation.name) {
    case "relu":
      return "nn.ReLU()";
    case "leaky":
      return `nn.LeakyReLU(${activation.slope})`;
    case "clip":
      return `nn.Hardtanh(${activation.low}, ${activation.high})`;
    case "abs":
      return "Abs()";
    case "maxout":
      return "Maxout()";
    case "tanh":
      return "nn.Tanh()";
    case "gelu":
      return "nn.GELU()";
    default:
      return null;
  }
}

const CLASSES: Partial<Record<Activation["name"], string>> = {
  abs: "class Abs(nn.Module):\n    def forward(self, z):\n        return z.abs()\n",
  maxout:
    "class Maxout(nn.Module):\n    def forward(self, z):\n" +
    "        return z.unflatten(-1, (-1, 2)).amax(-1)\n",
};

/** Python that builds the network with its weights, and computes its partition. */
export function pytorchOf({ layers }: Network): string {
  const own = [...new Set(layers.map(({ activation }) => CLASSES[activation.name]))];
  const modules = layers.flatMap(({ inputs, units, activation }) => {
    const module = moduleOf(activation);
    return [`nn.Linear(${inputs}, ${units})`, ...(module ? [module] : [])];
  });
  const rows = ({ inputs, units, weight }: Layer): string =>
    Array.from({ length: units }, (_, k) => {
      const row = Array.from({ length: inputs }, (_, j) => weight[j * units + k]);
      return `[${row.join(", ")}]`;
    }).join(",\n     ");
  const parameters = layers.flatMap((layer) => [
    `    [${rows(layer)}],`,
    `    [${Array.from(layer.bias).join(", ")}],`,
  ]);
  return [
    "import torch\nfrom torch import nn\n\nimport splinecam as sc\n",
    ...own.filter(Boolean).map((code) => `\n${code}`),
    `model = nn.Sequential(\n    ${modules.join(",\n    ")},\n).double()`,
    `parameters = [\n${parameters.join("\n")}\n]`,
    "with torch.no_grad():",
    "    for parameter, numbers in zip(model.parameters(), parameters, strict=True):",
    "        parameter.copy_(torch.tensor(numbers, dtype=torch.float64))",
    "\npart = sc.partition(model, sc.Domain.box(-1, 1))\nprint(part)\n",
  ].join("\n");
}

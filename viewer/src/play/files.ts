// Networks in files that are dropped on the page: safetensors and ONNX. Nothing leaves the page.

import { type Convolution, convolved, pooled, type Shape } from "./convolutions";
import { type Activation, evaluate, type Layer, type Network, transposed } from "./network";

/** A file that the page cannot show; the message names the Python that can. */
export class Unsupported extends Error {
  constructor(what: string, name: string) {
    super(
      `${what} The page reads dense layers, small convolutions, average pooling, batch-norm and ` +
        `ReLU-like activations. Python does more: sc.partition("${name}", domain), or splinecam view ${name} --box -1 1.`,
    );
  }
}

/** The network of a file. activation: of a file that names none. */
export function networkOfFile(name: string, data: ArrayBuffer, activation: Activation): Network {
  if (name.endsWith(".safetensors")) return ofSafetensors(name, data, activation);
  if (name.endsWith(".onnx")) return ofOnnx(name, new Uint8Array(data));
  throw new Unsupported(`${name} is neither .onnx nor .safetensors.`, name);
}

interface Tensor {
  dims: number[];
  data: Float64Array;
}

// -- safetensors ------------------------------------------------------------------------------

function ofSafetensors(name: string, data: ArrayBuffer, activation: Activation): Network {
  const tensors = readSafetensors(name, data);
  const layers: Layer[] = [];
  const order = new Intl.Collator("en", { numeric: true });
  const weights = [...tensors.keys()].filter((key) => /(^|\.)weight$/.test(key));
  for (const key of weights.sort(order.compare)) {
    const { dims, data: weight } = tensors.get(key)!;
    const prefix = key.slice(0, -"weight".length);
    const bias = tensors.get(`${prefix}bias`)?.data;
    const mean = tensors.get(`${prefix}running_mean`)?.data;
    const variance = tensors.get(`${prefix}running_var`)?.data;
    if (mean && variance) {
      const last = layers.at(-1);
      if (!last) throw new Unsupported("A batch-norm stands before the first layer.", name);
      const zeros = new Float64Array(weight.length);
      scale(last, weight, bias ?? zeros, mean, variance, 1e-5);
    } else if (dims.length === 2) {
      const [units, inputs] = dims as [number, number];
      const own = bias ?? new Float64Array(units);
      layers.push({ inputs, units, weight: transposed(weight, units), bias: own, activation });
    } else throw new Unsupported(`"${key}" has the shape [${dims.join(", ")}].`, name);
  }
  if (layers.length) layers.push({ ...layers.pop()!, activation: { name: "linear" } });
  return checked(name, layers);
}

function readSafetensors(name: string, data: ArrayBuffer): Map<string, Tensor> {
  const damaged = new Error(`${name} is damaged: it does not begin as safetensors files do.`);
  if (data.byteLength < 8) throw damaged;
  const length = Number(new DataView(data).getBigUint64(0, true));
  if (!(length > 0) || length > data.byteLength - 8) throw damaged;
  const header: unknown = JSON.parse(new TextDecoder().decode(new Uint8Array(data, 8, length)));
  const tensors = new Map<string, Tensor>();
  for (const [key, value] of Object.entries(header as object)) {
    if (key === "__metadata__") continue;
    const {
      dtype,
      shape,
      data_offsets: at,
    } = value as {
      dtype: string;
      shape: number[];
      data_offsets: [number, number];
    };
    if (!/^(F64|F32|F16|BF16)$/.test(dtype)) continue;
    const begin = 8 + length + at[0];
    if (!(at[0] >= 0 && at[1] >= at[0]) || begin + at[1] - at[0] > data.byteLength) throw damaged;
    const bytes = data.slice(begin, begin + at[1] - at[0]);
    tensors.set(key, { dims: shape, data: floats(dtype, bytes) });
  }
  return tensors;
}

function floats(type: string, bytes: ArrayBuffer): Float64Array {
  if (type === "F64") return new Float64Array(bytes);
  if (type === "F32") return Float64Array.from(new Float32Array(bytes));
  const halves = new Uint16Array(bytes);
  if (type === "BF16") {
    return Float64Array.from(new Float32Array(Uint32Array.from(halves, (h) => h << 16).buffer));
  }
  return Float64Array.from(halves, (h) => {
    const [sign, exponent, part] = [h >> 15 ? -1 : 1, (h >> 10) & 31, h & 1023];
    if (exponent === 31) return part ? Number.NaN : sign * Infinity;
    if (!exponent) return sign * part * 2 ** -24;
    return sign * (1 + part / 1024) * 2 ** (exponent - 15);
  });
}

// -- layers -----------------------------------------------------------------------------------

/** Put a batch-norm into the linear layer before it; a channel of an image has several units. */
function scale(
  layer: Layer,
  weight: Float64Array,
  bias: Float64Array,
  mean: Float64Array,
  variance: Float64Array,
  epsilon: number,
): void {
  const factor = weight.map((w, k) => w / Math.sqrt(variance[k]! + epsilon));
  const channel = (k: number): number =>
    Math.floor(((k % layer.units) * factor.length) / layer.units);
  layer.weight = layer.weight.map((w, k) => w * factor[channel(k)]!);
  layer.bias = layer.bias.map((b, k) => {
    const c = channel(k);
    return (b - mean[c]!) * factor[c]! + bias[c]!;
  });
}

/** Add a linear layer; one that follows another one becomes one with it. */
function addLinear(layers: Layer[], layer: Layer): void {
  const last = layers.at(-1);
  if (last?.activation.name !== "linear" || last.units !== layer.inputs) {
    layers.push(layer);
    return;
  }
  const rows = new Float64Array(last.weight.length + last.units);
  rows.set(last.weight);
  rows.set(last.bias, last.weight.length);
  const alone = { ...layer, bias: new Float64Array(layer.units) };
  const product = evaluate({ layers: [alone] }, rows);
  const end = last.inputs * layer.units;
  const bias = layer.bias.map((b, k) => b + product[end + k]!);
  const weight = product.slice(0, end);
  layers[layers.length - 1] = { ...layer, inputs: last.inputs, weight, bias };
}

/** The network of layers that fit each other; its last one has no activation. */
function checked(name: string, layers: Layer[]): Network {
  if (!layers.length) throw new Unsupported(`${name} has no dense layers.`, name);
  layers.forEach((layer, k) => {
    const before = layers[k - 1];
    if (before && before.units !== layer.inputs) {
      throw new Unsupported(
        `Layer ${k + 1} takes ${layer.inputs} numbers, and the one before gives ${before.units}.`,
        name,
      );
    }
    if (!layer.weight.every(Number.isFinite) || !layer.bias.every(Number.isFinite)) {
      throw new Error(`Layer ${k + 1} of ${name} has weights that are not numbers.`);
    }
  });
  const { units, activation } = layers.at(-1)!;
  if (activation.name !== "linear") {
    const weight = new Float64Array(units * units);
    for (let k = 0; k < units; k++) weight[k * units + k] = 1;
    const bias = new Float64Array(units);
    layers.push({ inputs: units, units, weight, bias, activation: { name: "linear" } });
  }
  if (layers[0]!.inputs < 2) throw new Unsupported("It takes one number only.", name);
  return { layers };
}

// -- ONNX -------------------------------------------------------------------------------------

type Field = { field: number; value: number; bytes: Uint8Array | null };

/** The fields of a message of Protocol Buffers. */
function* fieldsOf(bytes: Uint8Array): Generator<Field> {
  let at = 0;
  const varint = (): number => {
    for (let value = 0, factor = 1; ; factor *= 128) {
      const byte = bytes[at++];
      if (byte === undefined) throw new Error("The ONNX file is damaged: it ends too early.");
      value += (byte & 127) * factor;
      if (byte < 128) return value;
    }
  };
  while (at < bytes.length) {
    const key = varint();
    const [field, kind] = [Math.floor(key / 8), key % 8];
    if (kind === 0) yield { field, value: varint(), bytes: null };
    else {
      const size = kind === 2 ? varint() : kind === 5 ? 4 : 8;
      if (at + size > bytes.length) throw new Error("The ONNX file is damaged: it ends too early.");
      yield { field, value: 0, bytes: bytes.subarray(at, at + size) };
      at += size;
    }
  }
}

const words = (bytes: Uint8Array | null): string => new TextDecoder().decode(bytes ?? undefined);

function onnxTensor(bytes: Uint8Array): { name: string; tensor: Tensor } | null {
  let [name, type, external] = ["", 0, false];
  let raw: Uint8Array | null = null;
  const dims: number[] = [];
  const listed: number[] = [];
  const view = (b: Uint8Array) => new DataView(b.buffer, b.byteOffset, b.byteLength);
  for (const { field, value, bytes: inner } of fieldsOf(bytes)) {
    if (field === 1 && inner) for (const dim of packed(inner)) dims.push(dim);
    else if (field === 1) dims.push(value);
    else if (field === 2) type = value;
    else if (field === 8) name = words(inner);
    else if (field === 9) raw = inner;
    else if (field === 13) external = true;
    else if ((field === 4 || field === 10) && inner) {
      const size = field === 4 ? 4 : 8;
      for (let k = 0; k < inner.length; k += size) {
        listed.push(size === 4 ? view(inner).getFloat32(k, true) : view(inner).getFloat64(k, true));
      }
    }
  }
  if (external) throw new Error("The weights of this ONNX file are in another file.");
  const kinds: Record<number, string> = { 1: "F32", 10: "F16", 11: "F64", 16: "BF16" };
  const kind = kinds[type];
  if (!kind) return null; // shapes and axes, which dense networks do not need
  const data = raw ? floats(kind, raw.slice().buffer) : Float64Array.from(listed);
  return { name, tensor: { dims, data } };
}

function packed(bytes: Uint8Array): number[] {
  const numbers: number[] = [];
  for (let at = 0; at < bytes.length; ) {
    let [value, factor] = [0, 1];
    for (; ; factor *= 128) {
      const byte = bytes[at++]!;
      value += (byte & 127) * factor;
      if (byte < 128 || at >= bytes.length) break;
    }
    numbers.push(value);
  }
  return numbers;
}

interface Node {
  type: string;
  /** Of a node that is a constant. */
  constant: Tensor | null;
  inputs: string[];
  output: string;
  attributes: Map<string, number>;
  lists: Map<string, number[]>;
}

function onnxNode(bytes: Uint8Array): Node {
  const maps = { attributes: new Map(), lists: new Map() };
  const node: Node = { type: "", inputs: [], output: "", constant: null, ...maps };
  for (const { field, bytes: inner } of fieldsOf(bytes)) {
    if (field === 1) node.inputs.push(words(inner));
    else if (field === 2) node.output ||= words(inner);
    else if (field === 4) node.type = words(inner);
    else if (field === 5 && inner) {
      let [name, number] = ["", 0];
      const list: number[] = [];
      for (const part of fieldsOf(inner)) {
        if (part.field === 1) name = words(part.bytes);
        else if (part.field === 3) number = part.value;
        else if (part.field === 8) list.push(...(part.bytes ? packed(part.bytes) : [part.value]));
        else if (part.field === 4) number = Number(!/^(NOTSET|VALID)$/.test(words(part.bytes)));
        else if (part.field === 5 && part.bytes) {
          node.constant = onnxTensor(part.bytes)?.tensor ?? null;
        } else if (part.field === 2 && part.bytes) {
          const at = part.bytes;
          number = new DataView(at.buffer, at.byteOffset, 4).getFloat32(0, true);
        }
      }
      node.attributes.set(name, number);
      node.lists.set(name, list);
    }
  }
  return node;
}

const PASSED = ["Identity", "Flatten", "Reshape", "Dropout", "Cast", "Squeeze", "Unsqueeze"];
const AT_THE_END = ["Softmax", "LogSoftmax", "Sigmoid"];

/** The name of an input of the graph, and the shape of an image that it takes. */
function onnxInput(bytes: Uint8Array): { name: string; shape: Shape | null } {
  let name = "";
  const dims: number[] = [];
  const inside = function* (at: Uint8Array, field: number): Generator<Uint8Array> {
    for (const part of fieldsOf(at)) if (part.field === field && part.bytes) yield part.bytes;
  };
  for (const found of inside(bytes, 1)) name = words(found);
  for (const type of inside(bytes, 2))
    for (const tensor of inside(type, 1))
      for (const shape of inside(tensor, 2))
        for (const dim of inside(shape, 1)) {
          const [size] = [...fieldsOf(dim)].filter(({ field }) => field === 1);
          dims.push(size?.value ?? 0);
        }
  const [, channels = 0, height = 0, width = 0] = dims;
  const image = dims.length === 4 && channels * height * width > 0;
  return { name, shape: image ? { channels, height, width } : null };
}

function ofOnnx(name: string, file: Uint8Array): Network {
  const nodes: Node[] = [];
  const tensors = new Map<string, Tensor>();
  const inputs: ReturnType<typeof onnxInput>[] = [];
  for (const { field, bytes: graph } of fieldsOf(file)) {
    if (field !== 7 || !graph) continue;
    for (const { field: part, bytes } of fieldsOf(graph)) {
      if (!bytes) continue;
      if (part === 1) nodes.push(onnxNode(bytes));
      if (part === 11) inputs.push(onnxInput(bytes));
      const read = part === 5 ? onnxTensor(bytes) : null;
      if (read) tensors.set(read.name, read.tensor);
    }
  }
  if (!nodes.length) throw new Error(`${name} is damaged: it has no graph.`);
  const layers: Layer[] = [];
  let shape = inputs.find((input) => !tensors.has(input.name))?.shape ?? null;
  let [value, used] = ["", new Set<string>()];
  for (const [k, node] of nodes.entries()) {
    const copied = node.type === "Identity" ? tensors.get(node.inputs[0] ?? "") : node.constant;
    if (copied) tensors.set(node.output, copied);
    if (copied || node.type === "Constant") continue;
    const data = node.inputs.filter((input) => !tensors.has(input));
    if (value && data[0] !== value && !PASSED.includes(node.type)) {
      throw new Unsupported(`${node.type} does not continue the layer before it.`, name);
    }
    if (used.has(data[0] ?? "") && data[0]) {
      throw new Unsupported("It has connections that pass layers by.", name);
    }
    used = used.add(data[0] ?? "");
    value = node.output;
    if (AT_THE_END.includes(node.type) && k + 1 === nodes.length) break; // the class stays
    if (/^(Conv|AveragePool|GlobalAveragePool)$/.test(node.type)) {
      const made = onImages(name, node, tensors, shape);
      addLinear(layers, made.layer);
      shape = made.shape;
    } else if (!PASSED.includes(node.type)) addOnnx(name, node, tensors, layers);
  }
  return checked(name, layers);
}

/** A convolution or average pooling as a dense layer. */
function onImages(
  name: string,
  { type, inputs, attributes, lists }: Node,
  tensors: Map<string, Tensor>,
  shape: Shape | null,
): { layer: Layer; shape: Shape } {
  if (!shape)
    throw new Unsupported(`${type} takes an image, and its size is not in the file.`, name);
  if (attributes.get("auto_pad") || attributes.get("ceil_mode")) {
    throw new Unsupported(`${type} pads automatically, or rounds sizes up.`, name);
  }
  const two = (key: string, usual: number): [number, number] => {
    const list = lists.get(key) ?? [];
    return [list[0] ?? usual, list[1] ?? usual];
  };
  const pads = lists.get("pads")?.length === 4 ? lists.get("pads")! : [0, 0, 0, 0];
  const how: Convolution = { strides: two("strides", 1), dilations: two("dilations", 1), pads };
  try {
    if (type === "Conv") {
      const [weight, bias] = inputs.slice(1).map((input) => tensors.get(input));
      if (weight?.dims.length !== 4) throw new Error("A convolution is not one of images.");
      return convolved(shape, weight, bias?.data ?? null, attributes.get("group") ?? 1, how);
    }
    const all: [number, number] = [shape.height, shape.width];
    const size = type === "AveragePool" ? two("kernel_shape", 1) : all;
    return pooled(shape, size, how, attributes.get("count_include_pad") === 1);
  } catch (error) {
    throw new Unsupported(error instanceof Error ? error.message : String(error), name);
  }
}

function addOnnx(name: string, node: Node, tensors: Map<string, Tensor>, layers: Layer[]): void {
  const { type, inputs, attributes } = node;
  const constants = inputs.map((input) => tensors.get(input));
  const last = layers.at(-1);
  const linear = last?.activation.name === "linear";
  if (type === "Gemm" || type === "MatMul") {
    const [, matrix, added] = constants;
    if (matrix?.dims.length !== 2) {
      throw new Unsupported(`${type} multiplies two values that are not constant.`, name);
    }
    const turned = type === "Gemm" && attributes.get("transB") === 1;
    const [rows, columns] = matrix.dims as [number, number];
    const [n, m] = turned ? [columns, rows] : [rows, columns];
    const alpha = type === "Gemm" ? (attributes.get("alpha") ?? 1) : 1;
    const weight = turned ? transposed(matrix.data, rows) : matrix.data.slice();
    const beta = attributes.get("beta") ?? 1;
    const bias = added ? added.data.map((b) => beta * b) : new Float64Array(m);
    const own = bias.length === m ? bias : new Float64Array(m).fill(bias[0] ?? 0);
    const scaled = weight.map((w) => alpha * w);
    const activation = { name: "linear" } as const;
    addLinear(layers, { inputs: n, units: m, weight: scaled, bias: own, activation });
    return;
  }
  if (!last) throw new Unsupported(`${type} stands before the first dense layer.`, name);
  if (type === "Add" && linear) {
    const added = constants.find(Boolean)?.data;
    if (!added) throw new Unsupported("Add takes two values that are not constant.", name);
    const channel = (k: number): number => Math.floor((k * added.length) / last.units);
    last.bias = last.bias.map((b, k) => b + (added[channel(k)] ?? 0));
    return;
  }
  if (type === "BatchNormalization" && linear) {
    const [, weight, bias, mean, variance] = constants.map((each) => each?.data);
    if (!weight || !bias || !mean || !variance) {
      throw new Unsupported("A batch-norm has no constants.", name);
    }
    scale(last, weight, bias, mean, variance, attributes.get("epsilon") ?? 1e-5);
    return;
  }
  const activation = onnxActivation(type, attributes, constants);
  if (!activation || !linear) throw new Unsupported(`${type} is not supported here.`, name);
  layers[layers.length - 1] = { ...last, activation };
}

function onnxActivation(
  type: string,
  attributes: Map<string, number>,
  constants: (Tensor | undefined)[],
): Activation | null {
  if (type === "Relu") return { name: "relu" };
  if (type === "Abs") return { name: "abs" };
  if (type === "Tanh") return { name: "tanh" };
  if (type === "Gelu") return { name: "gelu" };
  if (type === "LeakyRelu") return { name: "leaky", slope: attributes.get("alpha") ?? 0.01 };
  if (type !== "Clip") return null;
  const low = constants[1]?.data[0] ?? attributes.get("min");
  const high = constants[2]?.data[0] ?? attributes.get("max");
  return low === undefined || high === undefined ? null : { name: "clip", low, high };
}

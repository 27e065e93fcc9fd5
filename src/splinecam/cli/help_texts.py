"""The help of each command: how it is called, what it does, and examples."""

from __future__ import annotations

from splinecam._util.text import how_to_install

_MODEL = """\
MODEL is one of
  model.onnx                  a network in an ONNX file
  model.pt2                   a program written by torch.export.save
  package.module:factory      a function or class that makes an nn.Module, or a module itself;
                              the current folder is importable
  path/to/file.py:factory     the same, in a file
The model is used in eval mode. Code and exported programs are run: use only what you trust.
Checkpoints (--weights) are opened with weights_only, and ONNX files are read: no code is run.
"""

# The help of each command: its arguments, a summary, and what it ends with.
HELP: dict[str, str] = {
    "demo": """\
[options]
train a small classifier and show its regions
examples:
  splinecam demo
  splinecam demo --out pictures --device cpu
""",
    "playground": """\
[--out FILE] [options]
write a page in which small networks train, and open it
The page needs neither Python nor a network: mail it, or put it on a course page.

examples:
  splinecam playground
  splinecam playground --out lecture.html --no-browser
""",
    "partition": f"""\
MODEL (--box|--vnnlib|--through|--around|--fit|--polygon) ... --out DIR [options]
compute, check, draw and save a partition
{_MODEL}
writes to DIR: partition.npz (sc.load, splinecam plot and stats read it), stats.json, stats.txt,
and the picture regions.png

examples:
  splinecam partition net.py:build --box -1 1 --out out
  splinecam partition net.py:build --arg width=64 --weights net.pt --box 0 0 2 1 --out out
  splinecam partition net.onnx --box -1 1 --out out
  splinecam partition net.onnx --box -1 1 --refine boundary --out out
  splinecam partition gelu.onnx --box -1 1 --smooth 1e-3 --refine boundary --out out
  splinecam partition cnn.pt2 --through digits.npz --key x --pick 3 8 14 --out out
  splinecam partition cnn.pt2 --around digits.npy --pick 7 --side 0.5 --out out
  splinecam partition net.py:build --slice 0 3 --box 0 1 --at 0.5,0.2,0.9,0.5,0.1 --out out
  splinecam partition net.pt2 --slice 0 1 --vnnlib prop_1.vnnlib.gz --out out
""",
    "plot": """\
SAVED.npz [--out FILE] [options]
draw a saved partition
examples:
  splinecam plot out/partition.npz
  splinecam plot out/partition.npz --color slope --out slope.pdf
  splinecam plot out/partition.npz --kind surface --output 0 --out surface.png
  splinecam plot out/partition.npz --color output --output 2 --axes ticks --out two.svg
  splinecam plot out/partition.npz --points digits.npz --key x --pick 3 8 14 --out marked.png
  splinecam plot out/partition.npz --kind layers --model net.py:build --out layers.png
""",
    "stats": """\
SAVED.npz ... [--json] [--table FILE] [options]
show the statistics of saved partitions
examples:
  splinecam stats out/partition.npz
  splinecam stats out/partition.npz --json | jq .stats.NR
  splinecam stats small.npz large.npz        side by side
  splinecam stats out/partition.npz --table regions.csv
  splinecam stats out/partition.npz --full --model net.py:build
""",
    "export": """\
SAVED.npz FILE ... [options]
write the regions of a saved partition for other programs
The name of a file says its format: GeoJSON has polygons in plane coordinates, .ply and .vtp (or the
older .vtk) polygons in space, .parquet one row per region, which needs the package pyarrow.

examples:
  splinecam export out/partition.npz regions.geojson
  splinecam export out/partition.npz surface.vtp surface.ply --output 0
  splinecam export out/partition.npz regions.parquet regions.geojson --columns area class output_0
""",
    "difference": f"""\
MODEL_A MODEL_B (--box|--vnnlib|--through|--around|--fit|--polygon) ... [options]
say where and by how much two networks differ
{_MODEL}
Both networks must take inputs and give outputs of the same shapes. The command prints the largest
and the mean differences of the outputs, an input at which they differ most (--json), and the area
on which the classes differ. --weights is for the first network.

examples:
  splinecam difference net.onnx net_int8.onnx --box -1 1
  splinecam difference net.pt2 pruned.pt2 --box -1 1 --out difference.png
  splinecam difference net.py:build net.py:build --weights a.pt --weights-b b.pt --box -1 1 --json
""",
    "surface": f"""\
MODEL --box LO HI --out FILE ... [options]
find the exact surface of a network of three inputs
{_MODEL}
The surface is where the output equals --level, such as the shape of a signed distance. The name of
a file says its format: .ply, .obj and .vtp have exact polygons, .stl and .glb triangles in single
precision, and .png, .pdf and .svg are pictures.

examples:
  splinecam surface net.pt2 --box -1 1 --out bunny.ply
  splinecam surface net.onnx --box -1 -1 0 1 1 2 --out part.stl part.png --capped
  splinecam surface net.py:build --box 0 1 --output 0 2 --out boundary.ply --json
""",
    "view": f"""\
SUBJECT ... [--box|--vnnlib|--through|--around|--fit|--polygon ...] [options]
look at regions in the browser: point, zoom, compare
SUBJECT is a MODEL with a domain, a saved partition (.npz), or the folder of a training run.
{_MODEL}
The viewer opens in the browser, from a server that only this machine can reach. It computes the
regions of a network wherever you zoom; for a saved partition, this needs --model. The command ends
when you close the page, or with Ctrl-C.

examples:
  splinecam view net.py:build --box -1 1
  splinecam view small.pt2 large.pt2 --box -1 1                    side by side
  splinecam view cnn.pt2 --through digits.npz --key x --pick 3 8 14
  splinecam view out/partition.npz --model net.py:build --color slope
  splinecam view runs/a                                            a run of sc.watch, as it grows
  splinecam view net.py:build --box -1 1 --html regions.html       one file, for a web page
""",
    "check": f"""\
MODEL [--input-shape 1,28,28] [options]
say whether a model is supported, and what stands in the way
{_MODEL}
With a domain it also estimates how many regions the model has there. The exit code is 0 if the
model is supported, and 1 if not.

examples:
  splinecam check net.py:build --input-shape 1,28,28
  splinecam check net.py:build --box -1 1
  splinecam check torchvision.models:resnet18 --input-shape 3,64,64
  splinecam check model.pt2
""",
    "check-property": f"""\
MODEL PROPERTY [--slice I J] [--at X ...] [options]
say whether a property holds on a slice, and where it fails
{_MODEL}
PROPERTY is a .vnnlib or .vnnlib.gz file: boxes of inputs, and the outputs that are unsafe there.
The verdict is about a slice of each box: it holds if no input of the slice is unsafe. The exit code
is 0 if it holds, 1 if it is violated, 3 if rounding or the bounds of --smooth cannot tell, and 2
after an error.

examples:
  splinecam check-property net.onnx prop.vnnlib --slice 0 1
  splinecam check-property net.onnx prop.vnnlib --slice 0 1 --at 0.6,0,0,0.5,-0.5
  splinecam check-property net.onnx prop.vnnlib --slice 0 1 --out unsafe.png --witness unsafe.npy
""",
    "local": f"""\
MODEL --points FILE --radius X [options]
count how often units switch in small balls around samples
{_MODEL}
examples:
  splinecam local net.pt2 --points x.npy --radius 0.005
  splinecam local net.onnx --points digits.npz --key x --pick 3 8 14 --radius 0.1 --exact --json
""",
    "ops": """\
[--search WORD | --markdown]
list supported and unsupported operations
Operations have the names of ATen, to which models are exported; --search also finds MaxPool2d.

examples:
  splinecam ops
  splinecam ops --search pool
""",
    "reproduce": """\
NAME ... [--quick] [--data DIR] [--out DIR] [options]
reproduce the tables and figures of the paper
Each experiment writes its figure (NAME.png, NAME.pdf), its numbers (NAME.json), and a table that
compares them with the paper (NAME.md). An interrupted training continues from its checkpoint. Data
sets are sought in --data, in the folder that SPLINECAM_DATA names, and in the usual places; with
--quick, small data sets of other packages replace missing ones.

examples:
  splinecam reproduce --list
  splinecam reproduce scaling
  splinecam reproduce table1 --quick
  splinecam reproduce cats --data ~/data --device cuda --out cats
""",
    "completion": f"""\
SHELL
print a completion script
Needs the package shtab:
  {how_to_install("completion")}
Put the script where the shell looks for it, and start a new shell:
  splinecam completion bash > ~/.local/share/bash-completion/completions/splinecam
  splinecam completion zsh > ~/.zfunc/_splinecam       with ~/.zfunc in $fpath before compinit
  splinecam completion fish > ~/.config/fish/completions/splinecam.fish
""",
}

# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The boards that support vGPUs, and the maximum number of vGPUs of each profile on one GPU.

A line without indentation is a board: name | product | architecture | framebuffer in GiB | brand in type names | PCI
device ids | notes. Notes: `gpus=N` GPUs on one board; `sriov` if vGPUs are on virtual functions; `vfs=N` virtual
functions, or `vfs>=N` if only a lower bound is known; `multi` if driver 510 lists the types of which a VM may have
several; `gfx` if MIG-backed vGPUs exist only on instances with graphics (1g.24gb+gfx), each of which serves several
vGPUs of one size.

Indented lines are the profiles of the board, as suffix:instances. `~` marks a number that was computed (from a type of
equal size or from the framebuffer) instead of read; `?` marks a type for which driver 510 does not say whether a VM may
have several.

Type names and PCI ids come from NVIDIA's open kernel modules (595.45.04), instances of C and Q types from
vgpu-device-manager 0.5.0, older boards from the type table of host driver 510.47.03. One irregularity is in the source:
RTX8000P takes eight of 4C but twelve of 4Q. The files of vgpu-device-manager also have names that end in GFX, NOME or
MEALL: these name configurations, and no driver lists such a type. The spelling of the RTX PRO 4500's types follows that
of the RTX PRO 6000, because no public list has it.
"""

from __future__ import annotations

TABLE = """
M10 | Tesla M10 | maxwell | 8 | GRID | - | gpus=4 multi
    0Q:16~ 1Q:8~ 2Q:4~ 4Q:2~ 8Q:1~
    1A:8~ 2A:4~ 4A:2~ 8A:1~
    0B:16~ 1B:8~ 1B4:8~ 2B:4~ 2B4:4~
M6 | Tesla M6 | maxwell | 8 | GRID | - | multi
    0Q:16~ 1Q:8~ 2Q:4~ 4Q:2~ 8Q:1~
    1A:8~ 2A:4~ 4A:2~ 8A:1~
    0B:16~ 1B:8~ 1B4:8~ 2B:4~ 2B4:4~
M60 | Tesla M60 | maxwell | 8 | GRID | - | gpus=2 multi
    0Q:16~ 1Q:8~ 2Q:4~ 4Q:2~ 8Q:1~
    1A:8~ 2A:4~ 4A:2~ 8A:1~
    0B:16~ 1B:8~ 1B4:8~ 2B:4~ 2B4:4~
P100 | Tesla P100 PCIe 16GB | pascal | 16 | GRID | - | multi
    1Q:16~ 2Q:8~ 4Q:4~ 8Q:2~ 16Q:1~
    4C:4~ 8C:2~ 16C:1~
    1A:16~ 2A:8~ 4A:4~ 8A:2~ 16A:1~
    1B:16~ 1B4:16~ 2B:8~ 2B4:8~
P100C | Tesla P100 PCIe 12GB | pascal | 12 | GRID | - | multi
    1Q:12~ 2Q:6~ 4Q:3~ 6Q:2~ 12Q:1~
    4C:3~ 6C:2~ 12C:1~
    1A:12~ 2A:6~ 4A:3~ 6A:2~ 12A:1~
    1B:12~ 1B4:12~ 2B:6~ 2B4:6~
P100X | Tesla P100 SXM2 16GB | pascal | 16 | GRID | - | multi
    1Q:16~ 2Q:8~ 4Q:4~ 8Q:2~ 16Q:1~
    4C:4~ 8C:2~ 16C:1~
    1A:16~ 2A:8~ 4A:4~ 8A:2~ 16A:1~
    1B:16~ 1B4:16~ 2B:8~ 2B4:8~
P4 | Tesla P4 | pascal | 8 | GRID | - | multi
    1Q:8~ 2Q:4~ 4Q:2~ 8Q:1~
    4C:2~ 8C:1~
    1A:8~ 2A:4~ 4A:2~ 8A:1~
    1B:8~ 1B4:8~ 2B:4~ 2B4:4~
P40 | Tesla P40 | pascal | 24 | GRID | - | multi
    1Q:24~ 2Q:12~ 3Q:8~ 4Q:6~ 6Q:4~ 8Q:3~ 12Q:2~ 24Q:1~
    4C:6~ 6C:4~ 8C:3~ 12C:2~ 24C:1~
    1A:24~ 2A:12~ 3A:8~ 4A:6~ 6A:4~ 8A:3~ 12A:2~ 24A:1~
    1B:24~ 1B4:24~ 2B:12~ 2B4:12~
P6 | Tesla P6 | pascal | 16 | GRID | - | multi
    1Q:16~ 2Q:8~ 4Q:4~ 8Q:2~ 16Q:1~
    4C:4~ 8C:2~ 16C:1~
    1A:16~ 2A:8~ 4A:4~ 8A:2~ 16A:1~
    1B:16~ 1B4:16~ 2B:8~ 2B4:8~
V100 | Tesla V100 PCIe 16GB | volta | 16 | GRID | 1db4 | multi
    1Q:16 2Q:8 4Q:4 8Q:2 16Q:1
    4C:4 8C:2 16C:1
    1A:16~ 2A:8~ 4A:4~ 8A:2~ 16A:1~
    1B:16~ 1B4:16~ 2B:8~ 2B4:8~
V100D | Tesla V100 PCIe 32GB | volta | 32 | GRID | 1db6 | multi
    1Q:32 2Q:16 4Q:8 8Q:4 16Q:2 32Q:1
    4C:8 8C:4 16C:2 32C:1
    1A:32~ 2A:16~ 4A:8~ 8A:4~ 16A:2~ 32A:1~
    1B:32~ 1B4:32~ 2B:16~ 2B4:16~
V100DX | Tesla V100 SXM2 32GB | volta | 32 | GRID | 1db5 | multi
    1Q:32 2Q:16 4Q:8 8Q:4 16Q:2 32Q:1
    4C:8 8C:4 16C:2 32C:1
    1A:32~ 2A:16~ 4A:8~ 8A:4~ 16A:2~ 32A:1~
    1B:32~ 1B4:32~ 2B:16~ 2B4:16~
V100L | Tesla V100 FHHL 16GB | volta | 16 | GRID | 1db3 | multi
    1Q:16 2Q:8 4Q:4 8Q:2 16Q:1
    4C:4 8C:2 16C:1
    1A:16~ 2A:8~ 4A:4~ 8A:2~ 16A:1~
    1B:16~ 1B4:16~ 2B:8~ 2B4:8~
V100S | Tesla V100S PCIe 32GB | volta | 32 | GRID | 1df6 | multi
    1Q:32 2Q:16 4Q:8 8Q:4 16Q:2 32Q:1
    4C:8 8C:4 16C:2 32C:1
    1A:32~ 2A:16~ 4A:8~ 8A:4~ 16A:2~ 32A:1~
    1B:32~ 2B:16~
V100X | Tesla V100 SXM2 16GB | volta | 16 | GRID | 1db1 | multi
    1Q:16 2Q:8 4Q:4 8Q:2 16Q:1
    4C:4 8C:2 16C:1
    1A:16~ 2A:8~ 4A:4~ 8A:2~ 16A:1~
    1B:16~ 1B4:16~ 2B:8~ 2B4:8~
RTX6000 | Quadro RTX 6000 | turing | 24 | GRID | - | multi
    1Q:24~ 2Q:12~ 3Q:8~ 4Q:6~ 6Q:4~ 8Q:3~ 12Q:2~ 24Q:1~
    4C:6~ 6C:4~ 8C:3~ 12C:2~ 24C:1~
    1A:24~ 2A:12~ 3A:8~ 4A:6~ 6A:4~ 8A:3~ 12A:2~ 24A:1~
    1B:24~ 2B:12~
RTX6000P | Quadro RTX 6000 passive | turing | 24 | GRID | - | multi
    1Q:24 2Q:12 3Q:8 4Q:6 6Q:4 8Q:3 12Q:2 24Q:1
    4C:6 6C:4 8C:3 12C:2 24C:1
    1A:24~ 2A:12~ 3A:8~ 4A:6~ 6A:4~ 8A:3~ 12A:2~ 24A:1~
    1B:24~ 2B:12~
RTX8000 | Quadro RTX 8000 | turing | 48 | GRID | - | multi
    1Q:32~ 2Q:24~ 3Q:16~ 4Q:12~ 6Q:8~ 8Q:6~ 12Q:4~ 16Q:3~ 24Q:2~ 48Q:1~
    4C:12~ 6C:8~ 8C:6~ 12C:4~ 16C:3~ 24C:2~ 48C:1~
    1A:32~ 2A:24~ 3A:16~ 4A:12~ 6A:8~ 8A:6~ 12A:4~ 16A:3~ 24A:2~ 48A:1~
    1B:32~ 2B:24~
RTX8000P | Quadro RTX 8000 passive | turing | 48 | GRID | - | multi
    1Q:32 2Q:24 3Q:16 4Q:12 6Q:8 8Q:6 12Q:4 16Q:3 24Q:2 48Q:1
    4C:8 6C:8 8C:6 12C:4 16C:3 24C:2 48C:1
    1A:32~ 2A:24~ 3A:16~ 4A:12~ 6A:8~ 8A:6~ 12A:4~ 16A:3~ 24A:2~ 48A:1~
    1B:32~ 2B:24~
T4 | Tesla T4 | turing | 16 | GRID | 1eb8 | multi
    1Q:16 2Q:8 4Q:4 8Q:2 16Q:1
    4C:4 8C:2 16C:1
    1A:16~ 2A:8~ 4A:4~ 8A:2~ 16A:1~
    1B:16~ 1B4:16~ 2B:8~ 2B4:8~
A10 | NVIDIA A10 | ampere | 24 | NVIDIA | 2236 | sriov vfs>=24 multi
    1Q:24 2Q:12 3Q:8 4Q:6 6Q:4 8Q:3 12Q:2 24Q:1
    4C:6 6C:4 8C:3 12C:2 24C:1
    1A:24~ 2A:12~ 3A:8~ 4A:6~ 6A:4~ 8A:3~ 12A:2~ 24A:1~
    1B:24~ 2B:12~ 3B:8~?
A100 | NVIDIA A100 PCIe 40GB | ampere | 40 | GRID | 20f1 | sriov vfs>=10 multi
    4C:10 5C:8 8C:5 10C:4 20C:2 40C:1
    1-5C:7 1-5CME:1 1-10C:4? 2-10C:3 3-20C:2 4-20C:1 7-40C:1
A100D | NVIDIA A100 PCIe 80GB | ampere | 80 | GRID | 20b5 20b8 | sriov vfs>=20 multi
    4C:20 8C:10 10C:8 16C:5 20C:4 40C:2 80C:1
    1-10C:7 1-10CME:1 1-20C:4? 2-20C:3 3-40C:2 4-40C:1 7-80C:1
A100DX | NVIDIA A100 HGX/SXM4 80GB | ampere | 80 | GRID | 20b2 | sriov vfs>=20 multi
    4C:20 8C:10 10C:8 16C:5 20C:4 40C:2 80C:1
    1-10C:7 1-10CME:1 1-20C:4? 2-20C:3 3-40C:2 4-40C:1 7-80C:1
A100X | NVIDIA A100 HGX/SXM4 40GB | ampere | 40 | GRID | 20b0 | sriov vfs>=10 multi
    4C:10 5C:8 8C:5 10C:4 20C:2 40C:1
    1-5C:7 1-5CME:1 1-10C:4? 2-10C:3 3-20C:2 4-20C:1 7-40C:1
A10G | NVIDIA A10G | ampere | 24 | NVIDIA | 2237 | sriov vfs>=24
    1Q:24~ 2Q:12~ 3Q:8~ 4Q:6~ 6Q:4~ 8Q:3~ 12Q:2~ 24Q:1~
    1A:24~ 2A:12~ 3A:8~ 4A:6~ 6A:4~ 8A:3~ 12A:2~ 24A:1~
    1B:24~ 2B:12~
A10M | NVIDIA A10M | ampere | 20 | NVIDIA | 2238 | sriov vfs>=20
    1Q:20~ 2Q:10~ 4Q:5~ 5Q:4~ 10Q:2~ 20Q:1~
    4C:5~ 5C:4~ 10C:2~ 20C:1~
    1A:20~ 2A:10~ 4A:5~ 5A:4~ 10A:2~ 20A:1~
    1B:20~ 2B:10~ 3B:6~
A16 | NVIDIA A16 | ampere | 16 | NVIDIA | 25b6 | gpus=4 sriov vfs>=16 multi
    1Q:16 2Q:8 4Q:4 8Q:2 16Q:1
    4C:4 8C:2 16C:1
    1A:16~ 2A:8~ 4A:4~ 8A:2~ 16A:1~
    1B:16~ 2B:8~ 3B:5~?
A2 | NVIDIA A2 | ampere | 16 | NVIDIA | 25b6 | sriov vfs=16 multi
    1Q:16 2Q:8 4Q:4 8Q:2 16Q:1
    4C:4 8C:2 16C:1
    1A:16~ 2A:8~ 4A:4~ 8A:2~ 16A:1~
    1B:16~ 2B:8~ 3B:5~?
A30 | NVIDIA A30 | ampere | 24 | NVIDIA | 20b7 20b9 | sriov vfs>=6 multi
    4C:6 6C:4 8C:3 12C:2 24C:1
    1-6C:4 1-6CME:1 2-12C:2 2-12CME:1? 4-24C:1
A40 | NVIDIA A40 | ampere | 48 | NVIDIA | 2235 | sriov vfs>=32 multi
    1Q:32 2Q:24 3Q:16 4Q:12 6Q:8 8Q:6 12Q:4 16Q:3 24Q:2 48Q:1
    4C:12 6C:8 8C:6 12C:4 16C:3 24C:2 48C:1
    1A:32~ 2A:24~ 3A:16~ 4A:12~ 6A:8~ 8A:6~ 12A:4~ 16A:3~ 24A:2~ 48A:1~
    1B:32~ 2B:24~ 3B:16~?
A800 | NVIDIA A800 40GB | ampere | 40 | GRID | 20f6 | sriov vfs>=10
    4C:10 5C:8 8C:5 10C:4 20C:2 40C:1
    1-5C:7 1-5CME:1 1-10C:4 2-10C:3 3-20C:2 4-20C:1 7-40C:1
A800D | NVIDIA A800 PCIe 80GB | ampere | 80 | GRID | 20f5 20fd | sriov vfs>=20
    4C:20 8C:10 10C:8 16C:5 20C:4 40C:2 80C:1
    1-10C:7 1-10CME:1 1-20C:4 2-20C:3 3-40C:2 4-40C:1 7-80C:1
A800DX | NVIDIA A800 HGX 80GB | ampere | 80 | GRID | 20f3 | sriov vfs>=20
    4C:20 8C:10 10C:8 16C:5 20C:4 40C:2 80C:1
    1-10C:7 1-10CME:1 1-20C:4 2-20C:3 3-40C:2 4-40C:1 7-80C:1
RTXA5000 | NVIDIA RTX A5000 | ampere | 24 | NVIDIA | 2231 | sriov vfs>=24 multi
    1Q:24 2Q:12 3Q:8 4Q:6 6Q:4 8Q:3 12Q:2 24Q:1
    4C:6 6C:4 8C:3 12C:2 24C:1
    1A:24~ 2A:12~ 3A:8~ 4A:6~ 6A:4~ 8A:3~ 12A:2~ 24A:1~
    1B:24~ 2B:12~ 3B:8~?
RTXA5500 | NVIDIA RTX A5500 | ampere | 24 | NVIDIA | 2233 | sriov vfs>=24 multi
    1Q:24 2Q:12 3Q:8 4Q:6 6Q:4 8Q:3 12Q:2 24Q:1
    4C:6 6C:4 8C:3 12C:2 24C:1
    1A:24~ 2A:12~ 3A:8~ 4A:6~ 6A:4~ 8A:3~ 12A:2~ 24A:1~
    1B:24~ 2B:12~ 3B:8~?
RTXA6000 | NVIDIA RTX A6000 | ampere | 48 | NVIDIA | 2230 | sriov vfs>=32 multi
    1Q:32 2Q:24 3Q:16 4Q:12 6Q:8 8Q:6 12Q:4 16Q:3 24Q:2 48Q:1
    4C:12 6C:8 8C:6 12C:4 16C:3 24C:2 48C:1
    1A:32~ 2A:24~ 3A:16~ 4A:12~ 6A:8~ 8A:6~ 12A:4~ 16A:3~ 24A:2~ 48A:1~
    1B:32~ 2B:24~ 3B:16~?
L2 | NVIDIA L2 | ada | 24 | NVIDIA | 27b6 | sriov vfs>=24
    1Q:24 2Q:12 3Q:8 4Q:6 6Q:4 8Q:3 12Q:2 24Q:1
    4C:6 6C:4 8C:3 12C:2 24C:1
    1A:24~ 2A:12~ 3A:8~ 4A:6~ 6A:4~ 8A:3~ 12A:2~ 24A:1~
    1B:24~ 2B:12~ 3B:8~
L20 | NVIDIA L20 | ada | 48 | NVIDIA | 26ba | sriov vfs>=32
    1Q:32 2Q:24 3Q:16 4Q:12 6Q:8 8Q:6 12Q:4 16Q:3 24Q:2 48Q:1
    4C:12 6C:8 8C:6 12C:4 16C:3 24C:2 48C:1
    1A:32~ 2A:24~ 3A:16~ 4A:12~ 6A:8~ 8A:6~ 12A:4~ 16A:3~ 24A:2~ 48A:1~
    1B:32~ 2B:24~ 3B:16~
L4 | NVIDIA L4 | ada | 24 | NVIDIA | 27b8 | sriov vfs>=24
    1Q:24 2Q:12 3Q:8 4Q:6 6Q:4 8Q:3 12Q:2 24Q:1
    4C:6 6C:4 8C:3 12C:2 24C:1
    1A:24~ 2A:12~ 3A:8~ 4A:6~ 6A:4~ 8A:3~ 12A:2~ 24A:1~
    1B:24~ 2B:12~ 3B:8~
L40 | NVIDIA L40 | ada | 48 | NVIDIA | 26b5 | sriov vfs>=32
    1Q:32 2Q:24 3Q:16 4Q:12 6Q:8 8Q:6 12Q:4 16Q:3 24Q:2 48Q:1
    4C:12 6C:8 8C:6 12C:4 16C:3 24C:2 48C:1
    1A:32~ 2A:24~ 3A:16~ 4A:12~ 6A:8~ 8A:6~ 12A:4~ 16A:3~ 24A:2~ 48A:1~
    1B:32~ 2B:24~ 3B:16~
L40G | NVIDIA L40G | ada | 24 | NVIDIA | 26b8 | sriov vfs>=24
    1Q:24~ 2Q:12~ 3Q:8~ 4Q:6~ 6Q:4~ 8Q:3~ 12Q:2~ 24Q:1~
    4C:6~ 6C:4~ 8C:3~ 12C:2~ 24C:1~
    1A:24~ 2A:12~ 3A:8~ 4A:6~ 6A:4~ 8A:3~ 12A:2~ 24A:1~
    1B:24~ 2B:12~ 3B:8~
L40S | NVIDIA L40S | ada | 48 | NVIDIA | 26b9 | sriov vfs=32
    1Q:32 2Q:24 3Q:16 4Q:12 6Q:8 8Q:6 12Q:4 16Q:3 24Q:2 48Q:1
    4C:12 6C:8 8C:6 12C:4 16C:3 24C:2 48C:1
    1A:32~ 2A:24~ 3A:16~ 4A:12~ 6A:8~ 8A:6~ 12A:4~ 16A:3~ 24A:2~ 48A:1~
    1B:32~ 2B:24~ 3B:16~
RTX5000-Ada | NVIDIA RTX 5000 Ada | ada | 32 | NVIDIA | 26b2 | sriov vfs>=32
    1Q:32 2Q:16 4Q:8 8Q:4 16Q:2 32Q:1
    4C:8 8C:4 16C:2 32C:1
    1A:32~ 2A:16~ 4A:8~ 8A:4~ 16A:2~ 32A:1~
    1B:32~ 2B:16~ 3B:10~
RTX5880-Ada | NVIDIA RTX 5880 Ada | ada | 48 | NVIDIA | 26b3 | sriov vfs>=32
    1Q:32 2Q:24 3Q:16 4Q:12 6Q:8 8Q:6 12Q:4 16Q:3 24Q:2 48Q:1
    4C:12 6C:8 8C:6 12C:4 16C:3 24C:2 48C:1
    1A:32~ 2A:24~ 3A:16~ 4A:12~ 6A:8~ 8A:6~ 12A:4~ 16A:3~ 24A:2~ 48A:1~
    1B:32~ 2B:24~ 3B:16~
RTX6000-Ada | NVIDIA RTX 6000 Ada | ada | 48 | NVIDIA | 26b1 | sriov vfs>=32
    1Q:32 2Q:24 3Q:16 4Q:12 6Q:8 8Q:6 12Q:4 16Q:3 24Q:2 48Q:1
    4C:12 6C:8 8C:6 12C:4 16C:3 24C:2 48C:1
    1A:32~ 2A:24~ 3A:16~ 4A:12~ 6A:8~ 8A:6~ 12A:4~ 16A:3~ 24A:2~ 48A:1~
    1B:32~ 2B:24~ 3B:16~
GH200 | NVIDIA GH200 96GB | hopper | 96 | NVIDIA | 2342 | sriov vfs>=7
    96C:1
    1-12C:7 1-12CME:1 1-24C:4 2-24C:3 3-48C:2 4-48C:1 7-96C:1
GH200L | NVIDIA GH200 144GB | hopper | 144 | NVIDIA | 2348 | sriov vfs>=7
    144C:1
    1-18C:7 1-18CME:1 1-36C:4 2-36C:3 3-72C:2 4-72C:1 7-144C:1
H100 | NVIDIA H100 PCIe 80GB | hopper | 80 | NVIDIA | 2331 | sriov vfs>=20
    4C:20 5C:16 8C:10 10C:8 16C:5 20C:4 40C:2 80C:1
    1-10C:7 1-10CME:1 1-20C:4 2-20C:3 3-40C:2 4-40C:1 7-80C:1
H100L | NVIDIA H100 PCIe 94GB (H100 NVL) | hopper | 94 | NVIDIA | 2321 | sriov vfs>=23
    4C:23 6C:15 11C:8 15C:6 23C:4 47C:2 94C:1
    1-12C:7 1-12CME:1 1-24C:4 2-24C:3 3-47C:2 4-47C:1 7-94C:1
H100XL | NVIDIA H100 SXM5 94GB | hopper | 94 | NVIDIA | 2339 | sriov vfs>=23
    4C:23 6C:15 11C:8 15C:6 23C:4 47C:2 94C:1
    1-12C:7 1-12CME:1 1-24C:4 2-24C:3 3-47C:2 4-47C:1 7-94C:1
H100XM | NVIDIA H100 SXM5 80GB | hopper | 80 | NVIDIA | 2330 2336 | sriov vfs>=20
    4C:20 5C:16 8C:10 10C:8 16C:5 20C:4 40C:2 80C:1
    1-10C:7 1-10CME:1 1-20C:4 2-20C:3 3-40C:2 4-40C:1 7-80C:1
H100XS | NVIDIA H100 SXM5 64GB | hopper | 64 | NVIDIA | 2337 | sriov vfs>=16
    4C:16 8C:8 16C:4 32C:2 64C:1
    1-8C:7 1-8CME:1 1-16C:4 2-16C:3 3-32C:2 4-32C:1 7-64C:1
H20 | NVIDIA H20 SXM5 96GB | hopper | 96 | NVIDIA | 2329 | sriov vfs>=24
    4C:24 6C:16 8C:12 12C:8 16C:6 24C:4 32C:3 48C:2 96C:1
    1-12C:7 1-12CME:1 1-24C:4 2-24C:3 3-48C:2 4-48C:1 7-96C:1
H200 | NVIDIA H200 PCIe 141GB (H200 NVL) | hopper | 141 | NVIDIA | 233b | sriov vfs>=32
    4C:32 7C:20 8C:16 14C:10 17C:8 28C:5 35C:4 70C:2 141C:1
    1-18C:7 1-18CME:1 1-35C:4 2-35C:3 3-71C:2 4-71C:1 7-141C:1
H200X | NVIDIA H200 SXM5 141GB | hopper | 141 | NVIDIA | 2335 | sriov vfs>=32
    4C:32 7C:20 8C:16 14C:10 17C:8 28C:5 35C:4 70C:2 141C:1
    1-18C:7 1-18CME:1 1-35C:4 2-35C:3 3-71C:2 4-71C:1 7-141C:1
H20X | NVIDIA H20 SXM5 141GB | hopper | 141 | NVIDIA | 232c | sriov vfs>=32
    4C:32 7C:20 8C:16 14C:10 17C:8 28C:5 35C:4 70C:2 141C:1
    1-18C:7 1-18CME:1 1-35C:4 2-35C:3 3-71C:2 4-71C:1 7-141C:1
H800 | NVIDIA H800 PCIe 80GB | hopper | 80 | NVIDIA | 2322 | sriov vfs>=20
    4C:20 5C:16 8C:10 10C:8 16C:5 20C:4 40C:2 80C:1
    1-10C:7 1-10CME:1 1-20C:4 2-20C:3 3-40C:2 4-40C:1 7-80C:1
H800L | NVIDIA H800 PCIe 94GB (H800 NVL) | hopper | 94 | NVIDIA | 233a | sriov vfs>=23
    4C:23 6C:15 11C:8 15C:6 23C:4 47C:2 94C:1
    1-12C:7 1-12CME:1 1-24C:4 2-24C:3 3-47C:2 4-47C:1 7-94C:1
H800XM | NVIDIA H800 SXM5 80GB | hopper | 80 | NVIDIA | 2324 | sriov vfs>=20
    4C:20 5C:16 8C:10 10C:8 16C:5 20C:4 40C:2 80C:1
    1-10C:7 1-10CME:1 1-20C:4 2-20C:3 3-40C:2 4-40C:1 7-80C:1
B200X | NVIDIA HGX B200 180GB | blackwell | 180 | NVIDIA | 2901 | sriov vfs>=7
    180C:1
    1-23C:7 1-23CME:1 1-45C:4 2-45C:3 3-90C:2 4-90C:1 7-180C:1
B300X | NVIDIA HGX B300 269GB | blackwell | 269 | NVIDIA | 3182 | sriov vfs>=7
    269C:1
    1-34C:7 1-34CME:1 1-67C:4 2-67C:3 3-135C:2 4-135C:1 7-269C:1
GB200 | NVIDIA GB200 189GB | blackwell | 189 | NVIDIA | 2941 | sriov vfs>=7
    189C:1
    1-24C:7 1-24CME:1 1-47C:4 2-47C:3 3-95C:2 4-95C:1 7-189C:1
RTX 6000D | NVIDIA RTX 6000D | blackwell | 84 | NVIDIA | 2bb9 | sriov vfs>=2 gfx
    84Q:1
    84C:1
    84A:1~
    1-42Q:2 2-84Q:1
    1-42C:2 2-84C:1
    1-42A:2~ 2-84A:1~
RTX Pro 4500 Blackwell DC | RTX PRO 4500 Blackwell Server Edition | blackwell | 32 | NVIDIA | 2c3a | sriov vfs>=4 gfx
    16Q:2
    8C:4 16C:2 32C:1
    1-16Q:2 2-8Q:4 2-32Q:1
    1-8C:4 1-16C:2 2-8C:4 2-16C:2 2-32C:1
RTX Pro 6000 Blackwell DC | RTX PRO 6000 Blackwell Server Edition | blackwell | 96 | NVIDIA | 2bb5 | sriov vfs>=48 gfx
    3Q:32 4Q:24 6Q:16 8Q:12 12Q:8 16Q:6 24Q:4 32Q:3 48Q:2 96Q:1
    8C:12 12C:8 16C:6 24C:4 32C:3 48C:2 96C:1
    3A:32~ 4A:24~ 6A:16~ 8A:12~ 12A:8~ 16A:6~ 24A:4~ 32A:3~ 48A:2~ 96A:1~
    2B:32 3B:32~
    1-2Q:48 1-3Q:32 1-4Q:24 1-6Q:16 1-8Q:12 1-12Q:8 1-24Q:4 2-12Q:8 2-16Q:6 2-24Q:4 2-48Q:2
    4-24Q:4 4-32Q:3 4-48Q:2 4-96Q:1
    1-8C:12 1-12C:8 1-24C:4 2-12C:8 2-16C:6 2-24C:4 2-48C:2 4-24C:4 4-32C:3 4-48C:2 4-96C:1
    1-2A:48~ 1-3A:32~ 1-4A:24~ 1-6A:16~ 1-8A:12~ 1-12A:8~ 1-24A:4~ 2-12A:8~ 2-16A:6~ 2-24A:4~ 2-48A:2~ 4-24A:4~
    4-32A:3~ 4-48A:2~ 4-96A:1~
    1-2B:48~ 1-3B:32~
"""

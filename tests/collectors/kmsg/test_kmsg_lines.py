"""Lines of the kernel log, as drivers and kernels of several ages write them."""

import pytest
from hypothesis import given, strategies as st

from flyball_collectors.kmsg.collector import fault_of
from flyball_collectors.kmsg.fault import Fault, LinkVerdict, slot_of
from flyball_collectors.kmsg.record import LogRecord, parse_record

XIDS = [
    ("NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.",
     Fault("xid", "0000:3b:00", 79, detail="GPU has fallen off the bus")),
    ("NVRM: Xid (PCI:0000:3B:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
     Fault("xid", "0000:3b:00", 79, detail="GPU has fallen off the bus")),
    ("NVRM: Xid (PCI:0000:3b:00): 79, pid=<unknown>, name=<unknown>, GPU has fallen off the bus.",
     Fault("xid", "0000:3b:00", 79, detail="GPU has fallen off the bus")),
    ("NVRM: Xid (PCI:0000:01:00): 31, pid=7974, name=exe, Ch 0000000a, intr 00000000. MMU Fault: ENGINE",
     Fault("xid", "0000:01:00", 31, process="exe[7974]", detail="Ch 0000000a, intr 00000000. MMU Fault: ENGINE")),
    ("NVRM: Xid (PCI:0000:01:00 GPU-I:05): 94, pid=7194, Contained: CE User Channel (0x9). RST: No, D-RST: No",
     Fault("xid", "0000:01:00", 94, process="process[7194]",
           detail="GPU instance 5, Contained: CE User Channel (0x9). RST: No, D-RST: No")),
    ("NVRM: Xid (PCI:0000:3b:00 GPU-I:01 GPU-CI:02): 43, pid=9, name=a, Ch 00000008",
     Fault("xid", "0000:3b:00", 43, process="a[9]", detail="GPU instance 1, compute instance 2, Ch 00000008")),
    ("NVRM: Xid (PCI:0000:9b:00): 13, pid=8, name=py, Graphics SM Warp Exception on (GPC 3, TPC 1, SM 0): Out Of Range",
     Fault("xid", "0000:9b:00", 13, process="py[8]", place="GPC 3, TPC 1",
           detail="Graphics SM Warp Exception on (GPC 3, TPC 1, SM 0): Out Of Range")),
    ("NVRM: Xid (PCI:0018:01:00): 145, pid=876767, name=ray::WorkerDict, RLW_RXPIPE Nonfatal XC0 i0 Link 13 "
     "(0x0409a0c2 0x00000008 0x00000001 0x00000000 0x00100000 0x00000004)",
     Fault("xid", "0018:01:00", 145, fatal=False, process="ray::WorkerDict[876767]",
           detail="RLW_RXPIPE nonfatal, link 13, subcode 0, status 0x8",
           link=LinkVerdict("gpu", "warning", "notify"))),
    ("NVRM: Xid (PCI:0008:01:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 08 "
     "(0x004505c6 0x00000000 0x00000000 0x00000000 0x00000000 0x00000000)",
     Fault("xid", "0008:01:00", 149, fatal=True, detail="NETIR_LINK_EVT fatal, link 8, subcode 4, status 0x0",
           link=LinkVerdict("cable", "critical", "drain"))),
    ("NVRM: Xid (PCI:0019:01:00): 149, NETIR Fatal XC0 i0 Link -1 (0x000fe406",
     Fault("xid", "0019:01:00", 149, fatal=True, detail="NETIR fatal, subcode 0",
           link=LinkVerdict("", "critical", "drain"))),
    ("NVRM: Xid (PCI:0000:dc:00): 45, pid=1818990, name=python3, Ch 00000001 caused by previous Xid 149",
     Fault("xid", "0000:dc:00", 45, process="python3[1818990]", cause=149,
           detail="Ch 00000001 caused by previous Xid 149")),
    ("NVRM: Xid (PCI:0000:01:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 (OS Reboot)",
     Fault("xid", "0000:01:00", 154, action=2,
           detail="GPU recovery action changed from 0x0 (None) to 0x2 (OS Reboot)")),
    ("NVRM: Xid (0000:03:00): 14, Channel 00000001", Fault("xid", "0000:03:00", 14, detail="Channel 00000001")),
    ("NVRM: Xid (PCI:0000:03:00): 48", Fault("xid", "0000:03:00", 48)),
    ("NVRM: Xid (8:0): 13, 0003 00000000", Fault("xid", detail="NVRM: Xid (8:0): 13, 0003 00000000")),
    ("NVRM: GPU 0000:01:00.0: GPU has fallen off the bus.", Fault("xid", "0000:01:00", 79, times=0)),
    ("NVRM: GPU at 0000:01:00.0: GPU has fallen off the bus.", Fault("xid", "0000:01:00", 79, times=0)),
]  # fmt: skip
SWITCH = "NVSwitch 3 (0000:04:00)"
OTHERS = [
    ("nvidia-nvswitch3: SXid (PCI:0000:04:00.0): 22013, Non-fatal, Link 44 Minion Link DLREQ interrupt",
     Fault("xid", "", 22013, False, f"SXID {SWITCH}", detail=f"{SWITCH} Link 44 Minion Link DLREQ interrupt")),
    ("nvidia-nvswitch3: SXid (PCI:0000:04:00.0): 24007, Fatal, Link 30 sourcetrack timeout error (First)",
     Fault("xid", "", 24007, True, f"SXID {SWITCH}", detail=f"{SWITCH} Link 30 sourcetrack timeout error (First)")),
    ("nvidia-nvswitch3: SXid (PCI:0000:04:00.0): 22013, Severity 0 Engine instance 44 Sub-engine instance 00", None),
    ("nvidia-nvswitch3: SXid (PCI:0000:04:00.0): 22013, Data {0x0000002b, 0x0000002b}", None),
    ("nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): garbled, Fatal",
     Fault("xid", subject="SXID", detail="nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): garbled, Fatal")),
    ("EDAC MC0: 2 CE memory read error on CPU_SrcID#0_Ha#0_Chan#1_DIMM#0 (channel:1 slot:0 page:0x1 offset:0x0)",
     Fault("ecc", fatal=False, subject="host memory", times=2,
           detail="MC0 memory read error on CPU_SrcID#0_Ha#0_Chan#1_DIMM#0")),
    ("EDAC MC11: 1 UE on DIMM_B2 (csrow:0 channel:1 page:0x0 offset:0x0 grain:64)",
     Fault("ecc", fatal=True, subject="host memory", detail="MC11 on DIMM_B2")),
    ("EDAC MC0: Giving out device to module skx_edac controller Skylake Socket#0", None),
    ("nvidia 0000:3b:00.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer, (Receiver ID)",
     Fault("pcie_error", "0000:3b:00", fatal=True, detail="Transaction Layer")),
    ("pcieport 0000:00:01.0: AER: PCIe Bus Error: severity=Uncorrectable (Non-Fatal), type=Data Link Layer, (X)",
     Fault("pcie_error", "0000:00:01", fatal=False, detail="Data Link Layer")),
    ("pcieport 0000:00:01.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)", None),
    ("Out of memory: Killed process 4321 (python3) total-vm:1kB, anon-rss:2kB, file-rss:0kB, shmem-rss:0kB, UID:0",
     Fault("oom_kill", subject="python3[4321]", process="python3[4321]")),
    ("Memory cgroup out of memory: Killed process 7 (tr ain) (x)) total-vm:1kB",
     Fault("oom_kill", subject="tr ain[7]", process="tr ain[7]", detail="of its cgroup")),
    ("python3 invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0", None),
    ("NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  570.195.03  Release Build", None),
    ("", None),
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), [*XIDS, *OTHERS])
def test_a_line_says(text: str, expected: Fault | None) -> None:
    assert fault_of(text) == expected


@given(
    st.text() | st.from_regex(r"NVRM: Xid \(.*", fullmatch=True) | st.sampled_from([x[0] for x in XIDS]),
    st.integers(0, 200),
)
def test_no_line_is_too_odd(text: str, cut: int) -> None:
    for line in (text, text[:cut], text + text):
        fault = fault_of(line)
        if "NVRM: Xid (" in line:
            assert fault is not None
            assert fault.kind == "xid"
            assert len(fault.detail) <= 200


@pytest.mark.parametrize(
    ("address", "slot"),
    [
        ("0000:3b:00.0", "0000:3b:00"), ("00000000:3B:00.0", "0000:3b:00"), ("PCI:0018:01:00", "0018:01:00"),
        ("00010018:01:00.0", "00010018:01:00"), ("3b:00.0", ""), ("", ""),
    ],
)  # fmt: skip
def test_slots_have_one_form(address: str, slot: str) -> None:
    assert slot_of(address) == slot


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b"4,1234,5678901,-;NVRM: Xid", LogRecord(4, 1234, 5678901, "NVRM: Xid")),
        (b"6,339,5140900,-,caller=T1;a;b", LogRecord(6, 339, 5140900, "a;b")),
        (b"30,1,2,-;from systemd", LogRecord(30, 1, 2, "from systemd")),
        (b"4,1,2;three fields", None),
        (b"x,1,2,-;text", None),
        (b"no record", None),
        (b"4,1,2,-;\xff", LogRecord(4, 1, 2, "\N{REPLACEMENT CHARACTER}")),
    ],
)
def test_records(line: bytes, expected: LogRecord | None) -> None:
    assert parse_record(line) == expected
    assert expected is None or expected.by_kernel == (expected.priority < 8)


@given(st.binary(max_size=60))
def test_no_bytes_are_too_odd(line: bytes) -> None:
    parse_record(line)

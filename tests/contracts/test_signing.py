"""Signatures of messages: whatever is changed on the way shows."""

import base64
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from hypothesis import given, strategies as st

from flyball_contracts.errors import ConfigError, DecodeError
from flyball_contracts.security.signing import HEADER, Keyring, Signer, new_key

TOPIC = "flyball.decisions.v1"


@pytest.fixture(scope="module", name="signer")
def _signer(tmp_path_factory: pytest.TempPathFactory) -> Signer:
    return new_key(tmp_path_factory.mktemp("keys") / "worker.pem")


def ring(*signers: Signer) -> Keyring:
    return Keyring({f"keys[{i}]": base64.b64encode(one.public).decode() for i, one in enumerate(signers)})


@given(st.binary(max_size=300))
def test_what_was_signed_is_known_again(signer: Signer, value: bytes) -> None:
    header = signer.header(TOPIC, value)
    assert ring(signer).signer(TOPIC, value, [("ce_id", b"1"), header]) == signer.id
    assert signer.header(TOPIC, value) == header  # a replay is the same to the byte


@given(st.binary(min_size=1, max_size=100), st.integers(0), st.integers(0, 7))
def test_any_flipped_bit_of_the_message_shows(signer: Signer, value: bytes, place: int, bit: int) -> None:
    changed = bytearray(value)
    changed[place % len(value)] ^= 1 << bit
    with pytest.raises(DecodeError, match="it was changed on the way"):
        ring(signer).signer(TOPIC, bytes(changed), [signer.header(TOPIC, value)])


@given(st.data())
def test_any_other_header_is_refused(signer: Signer, data: st.DataObject) -> None:
    name, right = signer.header(TOPIC, b"value")
    wrong = data.draw(
        st.binary(max_size=120) | st.integers(0, len(right) - 1).map(lambda i: right[:i] + b"\x00" + right[i + 1 :])
    )
    if wrong != right:
        with pytest.raises(DecodeError):
            ring(signer).signer(TOPIC, b"value", [(name, wrong)])


def test_whose_it_is_counts(signer: Signer, tmp_path: Path) -> None:
    other = new_key(tmp_path / "other.pem")
    header = signer.header(TOPIC, b"value")
    assert ring(other, signer).signer(TOPIC, b"value", [header]) == signer.id  # keys change one after the other
    with pytest.raises(DecodeError, match=f"key '{signer.id}' is none of actuator.keys"):
        ring(other).signer(TOPIC, b"value", [header])
    with pytest.raises(DecodeError, match=f"no header {HEADER}; set worker.signing_key"):
        ring(signer).signer(TOPIC, b"value", [])
    with pytest.raises(DecodeError):
        ring(signer).signer("flyball.outcomes.v1", b"value", [header])  # signed for another topic


@pytest.mark.parametrize("mode", [0o400, 0o440, 0o600, 0o640])
def test_a_key_may_be_read_by_its_group_as_kubernetes_mounts_it(mode: int, signer: Signer, tmp_path: Path) -> None:
    key = tmp_path / "group.pem"
    new_key(key)
    key.chmod(mode)
    assert Signer(key).id != signer.id


@pytest.mark.parametrize("mode", [0o604, 0o620, 0o602])
def test_a_key_that_others_may_read_or_change_is_refused(mode: int, tmp_path: Path) -> None:
    key = tmp_path / "open.pem"
    new_key(key)
    key.chmod(mode)
    with pytest.raises(ConfigError, match="may be read, or changed, by others; chmod 600"):
        Signer(key)


def test_files_that_are_no_key_are_refused(signer: Signer, tmp_path: Path) -> None:
    missing, text, open_ = tmp_path / "no.pem", tmp_path / "text.pem", tmp_path / "open.pem"
    text.write_text("-----BEGIN PRIVATE KEY-----\n")
    text.chmod(0o600)
    new_key(open_)
    open_.chmod(0o644)
    curve = tmp_path / "curve.pem"
    other = generate_private_key(SECP256R1())
    curve.write_bytes(other.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    curve.chmod(0o600)
    for path, words in (
        (missing, "flyball keys new"),
        (text, "no PEM private key"),
        (open_, "chmod 600"),
        (curve, "another kind than Ed25519"),
    ):
        with pytest.raises(ConfigError, match=words):
            Signer(path)
    with pytest.raises(ConfigError, match="does not exist"):
        new_key(open_)
    with pytest.raises(ConfigError, match=r"keys\[0\]: is not the base64 of 32 bytes"):
        Keyring({"keys[0]": "AAAA"})
    public = base64.b64encode(signer.public).decode()
    with pytest.raises(ConfigError, match="there twice"):
        Keyring({"keys[0]": public, "keys[1]": public})

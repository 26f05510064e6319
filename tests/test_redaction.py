"""What is a secret in a text, and what is not."""

import json

import pytest

from sweep.redaction import (
    REDACTED,
    Redaction,
    is_secret_name,
    redacted_parameters,
    secret_values,
    without_secrets,
)

PLAIN = Redaction(())


@pytest.mark.parametrize(
    "name",
    [
        "HF_TOKEN",
        "WANDB_API_KEY",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_ACCESS_KEY_ID",
        "password",
        "MY_SECRET",
        "apikey",
        "HF_TOKEN_2",
        "API_KEYS",
    ],
)
def test_names_of_secrets(name):
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "TOKENIZERS_PARALLELISM",
        "global_batch_tokens",
        "tokens_per_second",
        "NCCL_IB_PKEY",
        "author",
        "PATH",
        "KEY",
        "eos_token",
        "PAD_TOKEN",
    ],
)
def test_names_of_other_values(name):
    assert not is_secret_name(name)


def test_values_under_a_secrets_name_at_any_depth():
    document = {
        "site": {"env": {"HF_TOKEN": "abcdefgh", "PATH": "/usr/bin", "MY_SECRET": "short"}},
        "list": [{"password": "pass word"}],
    }
    assert secret_values(document, {"X_API_KEY": "123456"}) == {"abcdefgh", "pass word", "123456"}


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("export HF_TOKEN=abcdef123", f"export HF_TOKEN={REDACTED}"),
        ("export HF_TOKEN='abcdef123'", f"export HF_TOKEN='{REDACTED}'"),
        ('{"api_key": "abcdef123", "steps": 3}', f'{{"api_key": "{REDACTED}", "steps": 3}}'),
        (json.dumps('env {"password": "abcdef123"}'), json.dumps(f'env {{"password": "{REDACTED}"}}')),
        ("Authorization: Bearer abcdefghijklmnop1234", f"Authorization: Bearer {REDACTED}"),
        ("train --hf-token abcdef123 --steps 3", f"train --hf-token {REDACTED} --steps 3"),
        ("train --wandb_api_key=abcdef123", f"train --wandb_api_key={REDACTED}"),
        ("git clone https://me:abcdef@host/x.git", f"git clone https://me:{REDACTED}@host/x.git"),
        ("login with hf_" + "a1B2" * 8, f"login with {REDACTED}"),
        ("key AKIA" + "A1B2" * 4 + " used", f"key {REDACTED} used"),
        ("-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY-----", REDACTED),
    ],
)
def test_what_has_the_form_of_a_secret_is_removed(text, clean):
    assert PLAIN.clean(text) == clean


@pytest.mark.parametrize(
    "text",
    [
        "tokens_per_second: 123456.7, global_batch_tokens=1048576",
        "TOKENIZERS_PARALLELISM=false1",
        "commit 0123456789abcdef0123456789abcdef01234567",
        "loss 2.31 | grad norm 0.4 | token/s 12345678",
        '"token": "02006e25-p0001"',
        "RuntimeError: CUDA error: out of memory (key expired)",
    ],
)
def test_ordinary_output_is_unchanged(text):
    assert PLAIN.clean(text) == text


@pytest.mark.parametrize("value", ['quote"and\\slash', "with space and ä", "it's"])
def test_a_known_value_is_removed_in_every_spelling(value):
    redaction = Redaction([value])
    for text in (value, json.dumps({"x": value}), json.dumps(f"line {value}")):
        clean = redaction.clean(text)
        assert value not in clean
        assert json.dumps(value)[1:-1] not in clean
        assert REDACTED in clean


def test_of_two_known_values_the_longer_is_removed_whole():
    assert Redaction(["abcdef", "abcdef-ghijkl"]).clean("abcdef-ghijkl") == REDACTED


@pytest.mark.parametrize(
    ("grid", "hidden"),
    [
        ("env:\n  HF_TOKEN: abc\n  NCCL_ALGO: Ring\n", ["abc"]),
        ("env: {HF_TOKEN: abc, NCCL_ALGO: Ring}\n", ["abc"]),
        ('env:\n  HF_TOKEN: "my pass phrase"\n  NCCL_ALGO: Ring\n', ["my pass phrase"]),
        ("env:\n  hf_token: [abc, def]  # both accounts\n  NCCL_ALGO: Ring\n", ["abc", "def"]),
        ("env:\n  HF_TOKEN:\n    - abc\n    - def\n  NCCL_ALGO: Ring\n", ["abc", "def"]),
        ("env:\n  HF_TOKEN: >-\n    abc\n    def\n  NCCL_ALGO: Ring\n", ["abc", "def"]),
        ("site:\n  env: {WANDB_API_KEY: abc}\nenv: {NCCL_ALGO: Ring}\n", ["abc"]),
        ("include: [{HF_TOKEN: abc}]\nenv: {NCCL_ALGO: Ring}\n", ["abc"]),
    ],
)
def test_a_grid_is_shown_without_the_values_under_a_secrets_name(grid, hidden):
    import yaml

    shown = without_secrets(grid)
    assert not any(value in shown for value in hidden)
    assert REDACTED in shown
    assert "NCCL_ALGO: Ring" in shown
    assert yaml.safe_load(shown), "still YAML"


def test_a_grid_keeps_what_is_only_similar_to_a_secret():
    grid = "global_batch_tokens: 2048\nparams: {eos_token: 5, tokens_per_gpu: 2048, arguments: --eos-token abcdefgh}\n"
    assert without_secrets(grid) == grid


def test_parameters_are_cleaned_at_any_depth():
    given = {"data": ["https://me:pass1@host/x"], "nested": {"key": "hf_" + "a1B2" * 8}, "size": 7}
    assert redacted_parameters(given) == {
        "data": [f"https://me:{REDACTED}@host/x"],
        "nested": {"key": REDACTED},
        "size": 7,
    }

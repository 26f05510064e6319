"""What is a secret in a text, and what is not."""

import json
from pathlib import Path

import pytest
import yaml

from sweep.redaction import REDACTED, Redaction, is_secret_name, secret_values, without_secrets
from tests.support.hostile_texts import grows_faster

PLAIN = Redaction(())
S = "Zq8vKx2mPw7LbN4tR9sD"
"""the secret: no text may hold eight of its characters"""
FORMS = yaml.safe_load((Path(__file__).parent / "secret_forms.yaml").read_text())


@pytest.mark.parametrize("form", FORMS["secrets"])
def test_a_secret_is_removed_in_every_form(form):
    text = form.replace("{S}", S)
    for given in (text, json.dumps({"message": text, "step": 3})):
        clean = PLAIN.clean(given)
        assert S[4:12] not in clean
        assert REDACTED in clean
    assert json.loads(clean)["step"] == 3, "JSON remains JSON"


@pytest.mark.parametrize("text", FORMS["ordinary"])
def test_what_only_resembles_a_secret_is_unchanged(text):
    assert PLAIN.clean(text) == text


@pytest.mark.parametrize("kind", ["names of secrets", "names of others"])
def test_the_name_states_whether_a_value_is_secret(kind):
    assert {is_secret_name(name) for name in FORMS[kind]} == {kind == "names of secrets"}


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


@pytest.mark.parametrize("value", ['quote"and\\slash', "with space and ä", "it's"])
def test_a_known_value_is_removed_in_every_spelling(value):
    redaction = Redaction([value])
    for text in (value, json.dumps({"x": value}), json.dumps(f"line {value}")):
        clean = redaction.clean(text)
        assert value not in clean
        assert json.dumps(value)[1:-1] not in clean
        assert REDACTED in clean
    assert Redaction([value, f"{value}-longer"]).clean(f"{value}-longer") == REDACTED, (
        "of two the longer is removed whole"
    )


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
    assert PLAIN.clean_value(given) == {
        "data": [f"https://me:{REDACTED}@host/x"],
        "nested": {"key": REDACTED},
        "size": 7,
    }


@pytest.mark.parametrize(
    "document",
    [
        {"api_key": 12345678, "steps": 3},
        {"env": {"DB_PASSWORD": 'a"b\\c,d}e' + S, "PATH": "/usr/bin"}},
        {"lines": [f"export HF_TOKEN='{S}", "it's done"], "token": 5},
        {"token": S, "time": 1.5},
        {"nested": json.dumps({"password": S, "text": 'say "x"'})},
    ],
)
def test_a_json_document_remains_one(document):
    clean = PLAIN.clean(json.dumps(document))
    assert S[4:12] not in clean
    assert "12345678" not in clean
    assert json.loads(clean).keys() == document.keys()


def test_a_token_that_the_text_names_once_is_removed_everywhere():
    assert PLAIN.clean(f"HF_TOKEN={S}\nlogged in with {S}\n") == f"HF_TOKEN={REDACTED}\nlogged in with {REDACTED}\n"
    assert PLAIN.clean("DB_PASSWORD=training\ntraining starts\n") == f"DB_PASSWORD={REDACTED}\ntraining starts\n"


HOSTILE = ["token", "TOKEN=", "auth=", "token=abcdefgh1234567890A", "token " + "\\" * 2000, 'key: \\"' + "\\" * 2000,
           "-----BEGIN PRIVATE KEY-----", "-eyJabcdefghijk", "--a", "curl ", "a://(a:", "key-"]  # fmt: skip


@pytest.mark.parametrize("part", [*HOSTILE, None], ids=[*(part[:12] for part in HOSTILE), "distinct"])
def test_the_time_is_in_proportion_to_the_text(part):
    def clean(characters):
        many = (f"token=abcdefgh1234567890A{number}\n" for number in range(characters // 30))
        return PLAIN.clean("".join(many) if part is None else part * (characters // len(part)))

    assert not grows_faster(clean, [6000, 24_000, 96_000], 0.02)


def test_the_end_of_a_very_long_name_tells_whether_it_is_a_secrets():
    assert PLAIN.clean("X" * 5000 + "_TOKEN=abcdef123") == "X" * 5000 + f"_TOKEN={REDACTED}"
    assert PLAIN.clean("TOKEN" * 5000 + "=abcdef123") == "TOKEN" * 5000 + f"={REDACTED}"
    assert PLAIN.clean("TOKEN" + "x" * 5000 + "=abcdef123") == "TOKEN" + "x" * 5000 + "=abcdef123"


def test_yaml_whose_aliases_multiply_or_lead_to_themselves_takes_the_time_of_its_text():
    bomb = "a0: &a0 [1, 1]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 60))
    within = f"a: &a [*a, {{HF_TOKEN: {S}}}]\nb: &b {{HF_TOKEN: *b, c: &c short, d: {{WANDB_API_KEY: *c}}}}\n"
    clean = without_secrets(bomb + within)
    assert clean == bomb + within.replace(S, REDACTED).replace("&c short", REDACTED)

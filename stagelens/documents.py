"""`stagelens documents`: what pipelines search, put into the store, listed and taken out."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stagelens.errors import UserError

if TYPE_CHECKING:
    from collectors.documents.table import Documents
    from proxy.pipelines.embed.kit import Embeds

BATCH = 64
"""Chunks embedded at once; progress moves on after each batch."""


@click.group()
def documents() -> None:
    """Add, list or remove the documents that pipelines search."""


def _options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option("--format", "form", type=click.Choice(["table", "json"]), default="table",
                     show_default=True),
        click.option("--data-dir", type=click.Path(path_type=Path), help="Folder of the store."),
        click.option("--store", help="Store: chdb:///PATH or clickhouse://USER@HOST:PORT/DB."),
        click.option("--collector", help="API of a running collector (http://127.0.0.1:8090)."),
    ):  # fmt: skip
        command = option(command)
    return command


@documents.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FILES…")
@click.option("--collection", default="documents", show_default=True)
@click.option("--embedding", default="local", show_default=True, metavar="KIND",
              help="local, none, or the URL of an OpenAI-compatible server (…/v1).")
@click.option("--embedding-model", default="",
              help="With a URL: the model's name. With local: a model folder [the packaged one].")
@click.option("--embedding-key-env", default="", metavar="VARIABLE",
              help="Environment variable with the server's key.")
@click.option("--chunk-chars", type=click.IntRange(100, 20_000), default=1000, show_default=True,
              help="Longest chunk, in characters.")
@click.option("--overlap-chars", type=click.IntRange(0), default=150, show_default=True,
              help="How much of a chunk the next one repeats.")
@_options
def add(
    files: tuple[Path, ...], collection: str, embedding: str, embedding_model: str,
    embedding_key_env: str, chunk_chars: int, overlap_chars: int, form: str, **where: Any,  # noqa: ANN401
) -> None:  # fmt: skip
    """Cut text files into chunks, embed them and store them.

    A folder stands for the text files below it. A file that was added before is replaced.
    """
    from collectors.documents.files import chunks_of, read_text, text_files

    if overlap_chars > chunk_chars // 2:
        raise UserError("--overlap-chars is more than half of --chunk-chars: give less", 2)
    settings = _embedding(embedding, embedding_model, embedding_key_env)
    cut = [(f, chunks_of(read_text(f), chunk_chars, overlap_chars)) for f in text_files(files)]
    for file, chunks in cut:
        _check(collection, file, chunks)
    with _opened(**where, makes=True) as store:
        told = asyncio.run(_add_all(store, collection, cut, settings))
    lines = [
        f"{d['source']}: {d['chunks']} chunk{'s' * (d['chunks'] != 1)}{', replaced' * d['replaced']}"
        for d in told
    ]
    _say(form, {"collection": collection, "documents": told}, "\n".join(lines))


def _embedding(kind: str, model: str, key_env: str) -> Any:  # noqa: ANN401
    """The settings of an embedder; None for words alone."""
    from pydantic import ValidationError

    from proxy.pipelines.settings import EndpointEmbedding, LocalEmbedding

    if key_env and "://" not in kind:
        raise UserError("--embedding-key-env goes with the URL of a server in --embedding", 2)
    if kind == "none":
        if model:
            raise UserError("--embedding-model goes with --embedding local or a URL", 2)
        return None
    if kind == "local":
        return LocalEmbedding(folder=model)
    if "://" not in kind:
        raise UserError(f"--embedding {kind} is not known: give local, none or a URL", 2)
    if not model:
        raise UserError("--embedding URL needs --embedding-model NAME", 2)
    headers = {"authorization": key_env} if key_env else {}
    try:
        return EndpointEmbedding(url=kind, model=model, headers_env=headers)
    except ValidationError as problem:
        reason = problem.errors(include_url=False, include_input=False)[0]["msg"]
        raise UserError(f"--embedding: {reason.removeprefix('Value error, ')}", 2) from None


def _check(collection: str, file: Path, chunks: Sequence[str]) -> None:
    """UserError for what could not be stored: embedding takes long, and would be in vain."""
    from collectors.documents.model import MOST_CHUNKS

    if len(chunks) > MOST_CHUNKS:
        raise UserError(
            f"{file} makes {len(chunks)} chunks, more than {MOST_CHUNKS}: divide it, or give a larger "
            "--chunk-chars", 2,
        )  # fmt: skip
    _document(collection, file, ({"text": "x"},), "")


def _document(collection: str, file: Path, chunks: Sequence[Any], model: str) -> Any:  # noqa: ANN401
    from pydantic import ValidationError

    from collectors.documents.model import NewDocument

    try:
        return NewDocument(
            collection=collection, source=file.as_posix(), chunks=tuple(chunks), model=model
        )
    except ValidationError as problem:
        first = problem.errors(include_url=False, include_input=False)[0]
        if first["loc"] == ("source",):
            raise UserError(
                f"{file.as_posix()[:200]!a} is a name that cannot be kept (UTF-8 on one line, at "
                "most 1024 characters): give the file another one", 2,
            ) from None  # fmt: skip
        name = ".".join(str(part) for part in first["loc"]) or str(file)
        raise UserError(f"{name}: {first['msg'].removeprefix('Value error, ')}", 2) from None


async def _add_all(
    store: Documents, collection: str, cut: Sequence[tuple[Path, list[str]]], settings: Any  # noqa: ANN401
) -> list[dict[str, Any]]:
    """Embed and store one file after the other; what was stored stays if a later one fails."""
    from proxy.pipelines.embed.kit import started
    from proxy.pipelines.problems import StageProblem

    total = sum(len(chunks) for _, chunks in cut)
    with _progress(len(cut), total) as moved:
        if settings is None:
            return [await _add(store, collection, f, chunks, None, moved) for f, chunks in cut]
        try:
            async with started(settings) as embeds:
                return [await _add(store, collection, f, chunks, embeds, moved) for f, chunks in cut]
        except StageProblem as problem:
            raise UserError(f"the chunks cannot be embedded: {problem.text}") from None


async def _add(
    store: Documents, collection: str, file: Path, chunks: list[str], embeds: Embeds | None,
    moved: Callable[[str, int], None],
) -> dict[str, Any]:  # fmt: skip
    vectors: list[list[float]] = []
    if embeds is None:
        vectors = [[] for _ in chunks]
        moved(file.name, len(chunks))
    else:
        for at in range(0, len(chunks), BATCH):
            part = chunks[at : at + BATCH]
            vectors += await embeds.embed(part)
            moved(file.name, len(part))
    made = [{"text": t, "vector": v} for t, v in zip(chunks, vectors, strict=True)]
    model = embeds.model if embeds is not None else ""
    document = _document(collection, file, made, model)
    added = await asyncio.to_thread(store.add, document)
    return {"source": document.source, **added.model_dump()}


@contextmanager
def _progress(files: int, chunks: int) -> Iterator[Callable[[str, int], None]]:
    """A bar on a terminal's standard error; nothing elsewhere."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    console = Console(stderr=True)
    with Progress(
        TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(),
        TextColumn("chunks, left"), TimeRemainingColumn(), console=console, transient=True,
        disable=not console.is_terminal,
    ) as bar:  # fmt: skip
        task = bar.add_task(f"embedding {files} files", total=chunks)

        def moved(name: str, count: int) -> None:
            bar.update(task, advance=count, description=f"embedding {name}")

        yield moved


@documents.command("list")
@click.option("--collection", help="Only this one.")
@_options
def list_documents(collection: str | None, form: str, **where: Any) -> None:  # noqa: ANN401
    """What is stored, by collection."""
    with _opened(**where) as store:
        found = store.listing(collection)
    lines = [
        f"{d.collection:20} {d.chunks:>6} chunks {d.characters:>10,} characters  "
        f"{d.model or 'no vectors'}  {d.source}"
        for d in found.documents
    ]
    _say(form, found.model_dump(), "\n".join(lines) or "no documents are stored")


@documents.command()
@click.argument("sources", nargs=-1, metavar="SOURCES…")
@click.option("--collection", default="documents", show_default=True)
@click.option("--all", "whole", is_flag=True, help="The whole collection.")
@_options
def remove(sources: tuple[str, ...], collection: str, whole: bool, form: str, **where: Any) -> None:  # noqa: ANN401
    """Take documents out, by the names that `list` shows."""
    if whole == bool(sources):
        raise UserError("name the documents to remove, or give --all: one of them", 2)
    with _opened(**where) as store:
        gone = [store.remove(collection, source) for source in (sources or (None,))]
    told = {"documents": sum(g.documents for g in gone), "chunks": sum(g.chunks for g in gone)}
    _say(form, told, f"removed {told['documents']} documents, {told['chunks']} chunks")


@contextmanager
def _opened(
    collector: str | None, store: str | None, data_dir: Path | None, makes: bool = False
) -> Iterator[Documents]:
    """The collector that was named or that runs on the folder; else the store itself, which
    is made where there is none if the command ``makes`` something to store.
    """
    from collectors.documents.client import DocumentsClient
    from dashboards.settings import ApiSettings, read_token
    from stagelens.paths import DataFolder, default_data_dir
    from stagelens.ready import read_ready

    if collector and store:
        raise UserError("--collector and --store are two places: give one of them", 2)
    folder = DataFolder(data_dir or default_data_dir())
    facts = None if store else read_ready(folder.running)
    if collector or (facts and "api" in facts):
        token = read_token(ApiSettings())
        yield DocumentsClient(collector or str((facts or {})["api"]), token=token)
        return
    if makes and not store:
        folder.prepare()
    with _store(store or folder.store_url, makes) as table:
        yield table


@contextmanager
def _store(text: str, makes: bool) -> Iterator[Documents]:
    from collectors.documents.table import DocumentTable
    from collectors.store.client import open_store
    from collectors.store.folder import refuse_no_store
    from collectors.store.migrate import migrate
    from collectors.store.url import StoreUrl
    from tracer.clock import SystemClock

    url = StoreUrl.parse(text)
    if not makes:
        refuse_no_store(url)
    opened = open_store(url)
    try:
        migrate(opened)
        yield DocumentTable(opened, SystemClock())
    finally:
        opened.close()


def _say(form: str, facts: dict[str, Any], text: str) -> None:
    click.echo(json.dumps(facts, ensure_ascii=False) if form == "json" else text)
    sys.stdout.flush()

"""The statuses of `KafkaTable`, `KafkaMetadataArchive` and `KafkaScrub`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from kraft_operator.api.base import Model, marked
from kraft_operator.api.status import Condition


class PipelineCondition(Condition):
    """A condition, as in Kubernetes."""

    type: Literal["Ready", "Progressing", "Degraded"]


class PipelineStatus(Model):
    """The common status of all pipelines."""

    observed_generation: int = 0
    conditions: Annotated[list[PipelineCondition], Field(json_schema_extra=marked(keys=("type",)))] = []
    bootstrap_servers: Annotated[str, Field(description="the servers that the pipeline reads from")] = ""


class Batch(Model):
    """A committed batch."""

    number: int
    rows: int
    seconds: float
    time: Annotated[str, Field(json_schema_extra={"format": "date-time"})]


class KafkaTableStatus(PipelineStatus):
    """The state of the table, as its driver reports it."""

    topics: Annotated[str, Field(description="names of the topics, or their pattern")] = ""
    lag: Annotated[int, Field(description="records that are not in the table yet")] | None = None
    dead_letters: int | None = None
    last_batch: Batch | None = None


class Run(Model):
    """One run of a job."""

    name: str
    result: Annotated[str, Field(description="Running, Succeeded or Failed")]
    started: Annotated[str, Field(json_schema_extra={"format": "date-time"})] | None = None
    finished: Annotated[str, Field(json_schema_extra={"format": "date-time"})] | None = None
    message: Annotated[str, Field(max_length=4096, description="the last message of the run")] = ""


class KafkaRunStatus(PipelineStatus):
    """The results of the runs."""

    last_run: Run | None = None
    last_success: Annotated[str, Field(json_schema_extra={"format": "date-time"})] | None = None

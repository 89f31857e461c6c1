"""Parquet tables between assets: one file per asset and partition, replaced whole."""

import dagster as dg
import pyarrow as pa
from upath import UPath

from rag_assets.pipeline.storage import read_table, write_table


class ParquetIOManager(dg.UPathIOManager):
    """``<base>/<asset>/<partition>.parquet`` on a local disk or an object store."""

    extension = ".parquet"

    def __init__(self, base: UPath) -> None:
        super().__init__(base_path=base)

    def dump_to_path(self, context: dg.OutputContext, obj: pa.Table, path: UPath) -> None:
        """Write the table so that a reader sees the old file or the new one."""
        write_table(path, obj)

    def load_from_path(self, context: dg.InputContext, path: UPath) -> pa.Table:
        """Read the table. Raises FileNotFoundError when the asset was never materialised."""
        table = read_table(path)
        if table is None:
            raise FileNotFoundError(
                f"{path}: not there; materialise {context.asset_key.to_user_string()} first"
            )
        return table

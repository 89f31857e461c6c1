"""Every error the package raises on purpose, in one tree.

* ``RagError``
    * ``ConfigurationError``       the configuration file, a flag or an argument is wrong
        * ``InvalidQuery``             a search was asked for in a way that cannot be understood
    * ``SourceError``              a source could not be read
        * ``IncompleteEnumeration``    a listing did not reach its end: nothing may be deleted on it
        * ``SourceUnavailable``        the place a source reads from cannot be reached
        * ``RemovalRefused``           a complete listing lost more documents than allowed
        * ``NotThere``                 one thing that a server was asked for does not exist
        * ``Refused``                  the account may not see one thing
        * ``TooLarge``                 one answer of a server is larger than allowed
    * ``WorkerFailed``             a document took too much, or ended the process that opened it
    * ``WorkerNotStarted``         that process could not be started
    * ``ConversionFailed``         an office or PDF file cannot be read
    * ``OfficeUnavailable``        the extra for office files is not installed
    * ``ChunkingError``            a chunker was built with impossible settings
    * ``EmbeddingError``           an embedder could not give vectors, or a reranker scores
        * ``InvalidInput``             these texts will never be accepted: not retried
        * ``Unavailable``              the embedder cannot answer now: retried, then the run fails
        * ``MalformedResponse``        the embedder answered something that is not its contract
    * ``AssetError``               an asset's Parquet file could not be read or written
    * ``VectorStoreError``         the index could not be read or written
        * ``ExtensionUnavailable``     SQLite or sqlite-vec is missing or too old
        * ``DimensionMismatch``        vectors of another dimension than the index holds
        * ``FingerprintMismatch``      vectors or chunks of another model or chunker
        * ``IndexMissing``             there is no index yet
        * ``IndexDamaged``             the file is not a sound index of ours
        * ``IndexLocked``              somebody else is writing

The message of an error is one sentence or two: what is wrong, where, and what to do.
Only ``Unavailable`` is ever retried.
"""

from __future__ import annotations


class RagError(Exception):
    """Base of every error raised on purpose by this package."""


class ConfigurationError(RagError):
    """The configuration, a command-line flag or an argument is wrong."""


class InvalidQuery(ConfigurationError):
    """A search was asked for in a way that cannot be understood: mode, filter, length."""


class SourceError(RagError):
    """A source could not be read."""


class IncompleteEnumeration(SourceError):
    """A listing did not reach its end, so absence from it proves nothing."""


class SourceUnavailable(SourceError):
    """The place a source reads from cannot be reached."""


class RemovalRefused(SourceError):
    """A complete listing lost a larger share of the documents than ``max_removed_fraction``."""


class ChunkingError(RagError):
    """A chunker was built with impossible settings."""


class EmbeddingError(RagError):
    """An embedder could not give vectors, or a reranker could not give scores."""

    texts_suspected: bool = False
    """The texts themselves may be the cause: trying them in smaller batches may single it out."""


class InvalidInput(EmbeddingError):
    """The embedder refuses these texts; sending them again will not help."""

    texts_suspected = True


class Unavailable(EmbeddingError):
    """The embedder cannot answer now; the same call may go through later."""


class MalformedResponse(EmbeddingError):
    """The embedder answered something that is not its contract."""


class AssetError(RagError):
    """An asset's Parquet file could not be read or written."""


class VectorStoreError(RagError):
    """The index could not be read or written."""


class ExtensionUnavailable(VectorStoreError):
    """SQLite or its vector extension is missing or too old."""


class DimensionMismatch(VectorStoreError):
    """Vectors of another dimension than the index holds."""


class FingerprintMismatch(VectorStoreError):
    """Vectors or chunks made by another model or chunker than the index holds."""


class IndexMissing(VectorStoreError):
    """There is no index at the configured place yet."""


class IndexDamaged(VectorStoreError):
    """The file is not a sound index of this package."""


class IndexLocked(VectorStoreError):
    """Another process holds the writer lease of the index."""

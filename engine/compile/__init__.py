"""Pieces to CompiledPieces: parallel workers, goldens, the artifact."""

"""What a plan needs to have read: files of both sides, compared within bounds. Changes nothing, runs nothing."""

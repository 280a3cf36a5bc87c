SELECT since FROM journal_kept

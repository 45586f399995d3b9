enum fab_transfer_flags {
	FAB_TRANSFER_READ = 1,    /* remote -> local; else local -> remote */
	FAB_TRANSFER_CONFIRM = 2, /* done only when the peer has counted all */
	FAB_TRANSFER_NOTIFY = 4,  /* peer reaps FAB_TRANSFER_ARRIVED */
};

/* Pages of one transfer: page i lies at offset + index[i] * stride, on both
 * sides. Indices are borrowed for the call only. */
struct fab_pages {
	uint64_t page_bytes;
	uint64_t count;
	const int64_t *local_index;  /* count entries; NULL: 0, 1, 2 ... */
	const int64_t *remote_index; /* likewise */
	uint64_t local_offset, local_stride, local_bytes; /* side's length */
	uint64_t remote_offset, remote_stride, remote_bytes;
};

enum fab_pages_fault {
	FAB_PAGES_OK = 0,
	FAB_PAGES_LOCAL_RANGE = 1, /* index negative or page past the end */
	FAB_PAGES_REMOTE_RANGE = 2,
	FAB_PAGES_DUPLICATE = 3, /* destination page named twice */
	FAB_PAGES_STRIDE = 4,    /* destination stride < page_bytes */
	FAB_PAGES_NO_MEMORY = 5,
};

/* Check every page, all or nothing. `read`: the local side is the destination.
 * On a fault *position is the place in the list, *first the earlier place
 * (duplicates). 64-bit arithmetic that cannot wrap. [any] */
int fab_pages_check(const struct fab_pages *pages, int read, uint64_t *position,
		    uint64_t *first);

/* Owned by the engine until fab_transfer_release. */
struct fab_transfer;

/* The peer's region, as its descriptor names it. */
struct fab_remote {
	uint64_t base;        /* address of the first byte */
	uint64_t workers;     /* bit mask: those that have it registered */
	const uint64_t *keys; /* of all its lanes in order, or one for all */
	uint32_t key_count;
};

/* Start a transfer of pages that passed fab_pages_check. Indices and keys are
 * copied. sequence: this endpoint's own count of transfers, never reused.
 * FAB_TRANSFER_DONE with this token follows exactly once. Returns 0, -FI_ENOMEM,
 * -FI_EINVAL: keys do not fit the peer's lanes, or no path leads from where this
 * region is registered to where the remote one is; -FI_EHOSTUNREACH: no path does
 * any more. [loop] */
int fab_transfer_start(struct fab_engine *engine, uint32_t peer, uint32_t flags,
		       uint64_t token, uint64_t sequence,
		       struct fab_region *region,
		       const struct fab_remote *remote,
		       const struct fab_pages *pages,
		       struct fab_transfer **transfer);

/* Post no more of it. DONE (-FI_ECANCELED, or 0 if all was done) follows when
 * the NIC holds none of its memory. Any time before release. [loop] */
int fab_transfer_cancel(struct fab_engine *engine,
			struct fab_transfer *transfer);

/* Progress so far, by local completions. Any time before release. [loop] */
uint64_t fab_transfer_bytes_done(const struct fab_transfer *transfer);
uint64_t fab_transfer_pages_done(const struct fab_transfer *transfer);

/* Give it back, after DONE (and after QUIET if DONE was not quiet). [loop] */
int fab_transfer_release(struct fab_engine *engine,
			 struct fab_transfer *transfer);

struct fab_engine;
struct fab_completion; /* completion.h */

enum fab_engine_limits {
	FAB_MAX_WORKERS = 64,
	FAB_MAX_LANES = 64, /* of one worker */
};

enum fab_polling {
	FAB_POLLING_ADAPTIVE = 0, /* spin for spin_ns after work, then sleep */
	FAB_POLLING_BUSY = 1,     /* never sleep */
};

/* One worker: a thread, and the NICs that it alone uses. */
struct fab_plan {
	const char *const *nics; /* domain names, one a lane; NULL entry: any */
	const char *const *sources; /* numeric addresses of theirs, likewise */
	uint32_t lane_count;
	int32_t cpu; /* to run on; -1: wherever the system puts it */
};

/* All are borrowed for the call only. 0 or NULL: the default. */
struct fab_options {
	const char *provider; /* exact name, e.g. "tcp", "shm", "tcp;ofi_rxm" */
	const char *source;   /* numeric source address for the endpoint */
	const struct fab_plan *plans; /* one a worker; NULL: one, any NIC */
	uint32_t worker_count;        /* of plans, at most FAB_MAX_WORKERS */
	uint32_t polling;
	uint32_t frame_bytes;    /* largest frame payload */
	uint32_t receive_count;  /* receives kept posted per lane */
	uint32_t quantum;        /* operations of one transfer posted in turn */
	uint32_t inflight_count; /* operations in flight per lane */
	uint64_t inflight_bytes; /* bytes in flight per lane */
	uint64_t max_operation_bytes; /* one RMA operation carries at most this
				       */
	uint32_t segments; /* pages per operation; 0: measured table */
	uint32_t merge;    /* 1: adjacent pages become one segment */
	uint32_t warmup;   /* 1: a word on every lane when a peer is attached */
	uint64_t stripe_bytes; /* longer runs are cut over lanes and workers */
	uint64_t spin_ns;
	uint64_t nap_ns; /* longest sleep without a wait fd */
	uint64_t peer_timeout_ns;
	uint64_t frame_window_bytes; /* received, not yet freed frames per peer
				      */
};

/* What ends for good the writes of a peer that has fallen silent. */
enum fab_writes_last {
	FAB_WRITES_LAST_REGION =
		0, /* closing the region: the NIC checks keys */
	/* After that the end of the connection: a write that has begun goes on
	 * into memory whose region was closed. See fab_connections_await. */
	FAB_WRITES_LAST_CONNECTION = 1,
	FAB_WRITES_LAST_PROCESS = 2, /* the peer's end: it writes by itself */
};

/* What the opened provider is; the first lane speaks for all. */
struct fab_attributes {
	char provider[64];
	char domain[64];
	uint32_t worker_count;
	uint32_t address_bytes; /* of the longest one of all lanes */
	uint32_t frame_bytes;   /* payload limit of fab_frame_send */
	uint32_t immediate_bytes;
	uint32_t key_bytes;
	uint32_t virtual_addresses; /* 1: FI_MR_VIRT_ADDR */
	uint32_t wait_fd;           /* 1: the CQ can be slept on */
	uint32_t segments;
	uint32_t inflight_count;
	uint32_t writes_last; /* enum fab_writes_last */
	uint64_t max_operation_bytes;
};

/* Monotonic counts since the engine opened. Written by workers, relaxed. The
 * operations are RMA; frames are counted apart. */
struct fab_statistics {
	uint64_t operations_posted; /* that the provider took */
	uint64_t operations_completed;
	uint64_t operations_failed; /* or refused at once; refused frames too */
	uint64_t again; /* turns ended by -FI_EAGAIN or a full lane */
	uint64_t bytes_written;
	uint64_t bytes_read;
	uint64_t pages;               /* that ended in a completed operation */
	uint64_t immediates_received; /* stale ones too */
	uint64_t frames_sent;         /* that the provider took, hellos too */
	uint64_t frames_received;     /* stale and malformed ones too */
	uint64_t transfers_confirmed; /* as the target */
	uint64_t stale_frames;        /* wrong cookie or slot, dropped */
	uint64_t stale_immediates;    /* for no transfer that can be, dropped */
	uint64_t malformed_frames;    /* and receives that failed */
	uint64_t stray_completions;
	uint64_t lanes_failed;    /* lanes lost on the way to one peer */
	uint64_t parts_restarted; /* since a lane failed under them */
	uint64_t sleeps;          /* naps too */
	uint64_t wakeups;         /* of the loop */
};

/* Allocate an engine and start its workers, which open libfabric and answer
 * with FAB_WORKER_OPENED each. Returns 0 or a negative fi_errno. [loop] */
int fab_engine_open(const struct fab_options *options,
		    struct fab_engine **engine);

/* A file descriptor, readable while completions wait. Owned by the engine.
 * [loop] */
int fab_engine_fd(const struct fab_engine *engine);

/* Move up to `capacity` completions into `completions`; returns how many.
 * Clears the descriptor when none is left. Frames of the call before are freed
 * by this one. [loop] */
int fab_engine_reap(struct fab_engine *engine,
		    struct fab_completion *completions, int capacity);

/* Ask all workers to end: transfers end with -FI_ECANCELED, libfabric objects
 * close, FAB_WORKER_CLOSED follows from each. [loop] */
void fab_engine_stop(struct fab_engine *engine);

/* Join the workers and free the engine with all that was not reaped. Stops
 * first if fab_engine_stop was not called. Blocks until the workers ended: at
 * once after all FAB_WORKER_CLOSED were reaped. [loop] */
void fab_engine_close(struct fab_engine *engine);

void fab_engine_attributes(const struct fab_engine *engine,
			   struct fab_attributes *attributes);
void fab_engine_statistics(const struct fab_engine *engine,
			   struct fab_statistics *statistics);

/* How many lanes a worker has open. [loop] */
uint32_t fab_engine_lane_count(const struct fab_engine *engine,
			       uint32_t worker);

/* Copy the fabric address of a worker's lane into `address`, filled up with
 * zeros; attributes.address_bytes are enough. 0 or -FI_EINVAL. [loop] */
int fab_engine_address(const struct fab_engine *engine, uint32_t worker,
		       uint32_t lane, void *address, uint32_t capacity);

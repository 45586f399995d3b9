enum fab_completion_kind {
	FAB_WORKER_OPENED = 1,     /* status: 0 or why not (error) */
	FAB_WORKER_CLOSED = 2,     /* all its libfabric objects are closed */
	FAB_WORKER_FAILED = 3,     /* the engine is dead: CQ overrun and such */
	FAB_REGION_REGISTERED = 4, /* token; status, error */
	FAB_REGION_DEREGISTERED = 5, /* token */
	FAB_PEER_ADDED = 6,          /* token, peer; status, error */
	FAB_PEER_REMOVED = 7,        /* peer */
	FAB_PEER_FAILED =
		8,          /* peer, count; status, error; sent once per peer */
	FAB_FRAME_SENT = 9, /* token, peer */
	FAB_FRAME_RECEIVED = 10, /* peer or FAB_NO_PEER (hello); data */
	FAB_TRANSFER_DONE = 11,  /* token, peer; status, error, quiet, count */
	FAB_TRANSFER_QUIET = 12, /* token: memory of a non-quiet DONE is free */
	FAB_TRANSFER_ARRIVED =
		13,           /* peer; sequence; status: 0 or the sender's */
	FAB_LANE_FAILED = 14, /* peer, worker; token: its lane; status, error */
	FAB_PATH_FAILED =
		15, /* peer; sequence: its number; status, error. Others are left. */
	FAB_CONNECTIONS_ENDED = 16, /* token; worker */
};

enum fab_limits {
	FAB_NO_PEER = 0xffffffff,
};

/* What the loop reaps. Fields not named for the kind are 0. */
struct fab_completion {
	uint32_t kind;
	int32_t status; /* 0 or a negative fi_errno */
	uint32_t worker;
	uint32_t peer;
	uint64_t token;
	uint64_t sequence; /* ARRIVED: the sender's transfer sequence */
	uint64_t count;    /* DONE with -FI_EIO: operations the peer counted;
			   PEER_FAILED: ns since it was last heard of */
	uint32_t quiet;    /* DONE: 1 if the NIC holds none of the memory */
	uint32_t severed;  /* DONE, within the engine: enum fab_part_severed */
	const void *data;  /* RECEIVED: payload, borrowed until the next reap */
	uint64_t bytes;    /* RECEIVED: of data */
	struct fab_error *error; /* owned by the loop; NULL if status is 0 */
};

void fab_error_free(struct fab_error *error);

/* Peers are named by a number that the engine chooses.
 *
 * Two Fabrics are joined by as many paths as the one with more workers has
 * workers: path i leads from worker i of either side to worker i of the other,
 * counted round where one has fewer. Each worker names the peer by a slot of
 * its own, below 65536, which the other side must know. */

/* Insert a peer. `addresses` holds the fabric addresses of all its lanes, of
 * address_bytes each, worker by worker, lane_counts[i] for worker i; `cookie`
 * is a random number that the peer must put in every frame for us (stale or
 * foreign frames are dropped and counted). Answered by FAB_PEER_ADDED with this
 * token. [loop] */
int fab_peer_add(struct fab_engine *engine, uint64_t token, uint64_t cookie,
		 const void *addresses, uint32_t address_bytes,
		 const uint32_t *lane_counts, uint32_t worker_count);

/* How many paths lead to the peer, and our slot for it on each. [loop] */
uint32_t fab_peer_path_count(const struct fab_engine *engine, uint32_t peer);
uint32_t fab_peer_slot(const struct fab_engine *engine, uint32_t peer,
		       uint32_t path);

/* Tell the engine how the peer calls us: its slots for us, one a path, and its
 * cookie, from its hello. Frames of kind FAB_FRAME_MESSAGE and transfers need
 * it. Every heartbeat_ns a heartbeat leaves on each path, and the
 * peer, which does the same, is lost when it is not heard of for
 * peer_timeout_ns; 0: neither, and only who is waited for is lost.
 * 0, -FI_EINVAL if the slots make no sense, or -FI_ENOMEM. [loop] */
int fab_peer_attach(struct fab_engine *engine, uint32_t peer,
		    const uint32_t *remote_slots, uint32_t path_count,
		    uint64_t remote_cookie, uint64_t heartbeat_ns);

/* Forget a peer. What is queued for it is dropped, its transfers stop and end
 * with -FI_ECANCELED, operations already posted are waited for (bounded by
 * peer_timeout); then FAB_PEER_REMOVED. Nothing for this peer follows it.
 * 0, -FI_ENOMEM, or -FI_EINVAL if there is no such peer. [loop] */
int fab_peer_remove(struct fab_engine *engine, uint32_t peer);

/* Wait until no connection is left by which peers that fell silent may still
 * write: all that a worker has now end, but for those of living peers. The
 * lost peers' addresses are as in fab_peer_add, lost_ns is when the last of them
 * was lost (CLOCK_MONOTONIC). Connections to their hosts that nobody has named
 * within peer_timeout are shut down. Answered by FAB_CONNECTIONS_ENDED with
 * this token; never where the provider's connections cannot be known. Only where
 * writes_last is CONNECTION, after the regions were closed. 0 or -FI_ENOMEM.
 * [loop] */
int fab_connections_await(struct fab_engine *engine, uint32_t worker,
			  uint64_t token, uint64_t lost_ns,
			  const void *addresses, uint32_t address_bytes,
			  uint32_t count);

enum fab_frame_kind {
	FAB_FRAME_HELLO = 1,   /* for no peer yet: `body` is all there is */
	FAB_FRAME_MESSAGE = 2, /* for the peer's message layer */
};

/* Queue one frame of head + body (copied). `kind` HELLO is sent unattached.
 * head_bytes + body_bytes <= fab_engine_frame_bytes(). Frames to one peer
 * leave in order, before pages, by the first path that has not failed; what was
 * on its way over one that fails is lost. With token != 0 FAB_FRAME_SENT with it follows
 * when the provider has completed it; a failure always arrives, as
 * FAB_PEER_FAILED. [loop] */
int fab_frame_send(struct fab_engine *engine, uint32_t peer, uint32_t kind,
		   uint64_t token, const void *head, uint32_t head_bytes,
		   const void *body, uint32_t body_bytes);

/* An engine whose worker has no thread and whose lane is a script.
 *
 * The submission and completion rings, the commands, posting and reaping are
 * the engine's own; libfabric's objects are tables of functions in here. The
 * test moves the clock and says what completes, in which order. Nothing is
 * posted or read but in fake_pass, so every run is the same.
 * Link with -Wl,--wrap=fab_worker_start,--wrap=fab_worker_join. */
#ifndef FAB_TEST_FAKE_LANE_H
#define FAB_TEST_FAKE_LANE_H

#include "check.h"
#include "confirm.h"
#include "engine.h"
#include "fabricio.h"
#include "frame.h"
#include "part.h"
#include "region.h"
#include "registration.h"
#include "transfer.h"
#include "worker.h"

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

#define FAKE_SECOND_NS     1000000000ull
#define FAKE_FRAME_BYTES   256u
#define FAKE_REMOTE_SLOT   7u
#define FAKE_KEY           9u
#define FAKE_COOKIE        0x1111ull
#define FAKE_REMOTE_COOKIE 0x2222ull

enum fake_kind {
	FAKE_SEND = 1,
	FAKE_WRITE,
	FAKE_READ,
};

/* One operation that the engine posted. */
struct fake_post {
	uint32_t kind;
	uint32_t done; /* its completion was queued */
	uint32_t segments;
	uint32_t immediate;
	uint32_t has_immediate;
	fi_addr_t address;
	uint64_t bytes;
	uint64_t local;  /* address of the first segment */
	uint64_t remote; /* likewise */
	uint64_t key;
	void *context;
	struct fab_frame_header header; /* SEND */
	struct fab_announce announce;   /* SEND of ANNOUNCE */
	struct fab_confirm confirm;     /* SEND of CONFIRM */
	struct fab_proof proof;         /* SEND of PROVE or PROVEN */
};

/* One thing that fi_cq_read or fi_cq_readerr will say. */
struct fake_event {
	ssize_t ret; /* 1: entry; -FI_EAVAIL: error; else said as it is */
	struct fi_cq_data_entry entry;
	struct fi_cq_err_entry error;
};

struct fake_receive {
	void *buffer;
	void *context;
};

struct fake {
	struct fab_engine *engine;
	struct fab_worker *worker; /* borrowed from engine */
	struct fab_lane *lane;     /* borrowed from worker */
	/* What the engine did. */
	struct fake_post *posts; /* owned */
	size_t post_count, post_capacity;
	size_t mr_opened, mr_closed;
	size_t addresses;
	struct fake_receive receives[64]; /* posted, oldest first */
	size_t receive_count;
	/* What it will be told. */
	struct fake_event *events; /* owned */
	size_t event_first, event_count, event_capacity;
	size_t again;   /* so many next posts meet -FI_EAGAIN */
	size_t fail_at; /* after so many good RMA posts, one fails ... */
	int fail_code;  /* ... with this, if not 0 */
	int send_code;  /* sends fail with this, if not 0 */
	size_t recv_again;
	int mr_code; /* registrations fail with this, if not 0 */
	void (*on_mr_close)(struct fake *fake);
	/* libfabric's objects. */
	struct fid_ep ep;
	struct fid_cq cq;
	struct fid_av av;
	struct fid_domain domain;
	struct fid_fabric fabric;
};

/* Limits that a lane has from its provider; 0: a default. */
struct fake_limits {
	uint32_t inflight_count;
	uint64_t inflight_bytes;
	uint64_t operation_bytes;
	uint32_t segments;
	uint32_t bounce;  /* 1: frames go through registered memory */
	uint32_t no_wait; /* 1: the CQ has no wait fd */
};

/* `options` and `limits` may be NULL. peer_timeout is 8 s by default. */
void fake_open(struct fake *fake, const struct fab_options *options,
	       const struct fake_limits *limits);
/* Stop, close everything, free; checks that no MR and no address is left. */
void fake_close(struct fake *fake);
/* What the worker's thread would do at its end. */
void fake_stop(struct fake *fake);

/* Commands, posts, CQ: one of each. */
void fake_pass(struct fake *fake);
/* Passes until one neither posts nor reads anything. */
void fake_run(struct fake *fake);
/* Move the clock on, and tick all peers. */
void fake_tick(struct fake *fake, uint64_t ns);

/* A peer, attached with FAKE_REMOTE_SLOT and the two cookies; its slot. */
uint32_t fake_peer(struct fake *fake);
void fake_attach(struct fake *fake, uint32_t peer);
/* What fake_start writes to. */
struct fab_remote fake_remote(void);
/* What the one worker has of it. */
struct fab_part *fake_part(const struct fab_transfer *transfer);
struct fab_registration *fake_registration(const struct fab_region *region);
uint32_t fake_peer_open(struct fake *fake);
struct fab_peer *fake_slot(struct fake *fake, uint32_t peer);

/* For all access, with FAKE_KEY; so are the transfers of fake_start. */
struct fab_region *fake_region(struct fake *fake, uint64_t bytes);
/* `count` pages of `page_bytes`, in order on both sides; token is sequence. */
struct fab_transfer *fake_start(struct fake *fake, uint32_t peer,
				uint32_t flags, uint64_t sequence,
				struct fab_region *region, uint64_t page_bytes,
				uint64_t count);
/* The same to other memory of the peer's than fake_remote's. */
struct fab_transfer *fake_start_to(struct fake *fake, uint32_t peer,
				   uint32_t flags, uint64_t sequence,
				   struct fab_region *region,
				   uint64_t page_bytes, uint64_t count,
				   const struct fab_remote *remote);

/* The completion of posts[i]; err 0 or a positive fi_errno. */
void fake_complete(struct fake *fake, size_t i, int err);
/* Complete all posts from `first` on that are not done. */
void fake_complete_all(struct fake *fake, size_t first);
void fake_say(struct fake *fake, ssize_t ret);
void fake_immediate(struct fake *fake, uint32_t immediate);
void fake_frame(struct fake *fake, uint32_t peer, uint32_t kind,
		const void *payload, uint32_t bytes);
void fake_announce(struct fake *fake, uint32_t peer,
		   const struct fab_announce *announce);
/* The peer's answer to an announcement that was posted. */
void fake_answer(struct fake *fake, uint32_t peer,
		 const struct fake_post *announced, int32_t status,
		 uint64_t counted);

/* Posts of this kind from `first` on; frames: of this frame kind. */
size_t fake_count(const struct fake *fake, uint32_t kind, size_t first);
size_t fake_count_frames(const struct fake *fake, uint32_t kind, size_t first);
/* The last frame of this kind that was posted. */
const struct fake_post *fake_last_frame(const struct fake *fake, uint32_t kind);

/* Reap one completion: 1, or 0 if none is there. Its error is freed. */
int fake_reap(struct fake *fake, struct fab_completion *completion);
/* Reap one, which must be of this kind. */
void fake_expect(struct fake *fake, uint32_t kind,
		 struct fab_completion *completion);
/* Nothing is there to reap. */
void fake_expect_none(struct fake *fake);

#endif

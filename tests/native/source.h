/* One peer and one region on a scripted lane, where transfers begin. */
#ifndef FAB_TEST_SOURCE_H
#define FAB_TEST_SOURCE_H

#include "fake_lane.h"

#define PAGE    100u /* of each operation */
#define WRITE   FAB_TRANSFER_CONFIRM
#define NOTIFY  FAB_TRANSFER_NOTIFY
#define TIMEOUT (8 * FAKE_SECOND_NS)

struct source {
	struct fake fake;
	struct fab_region *region;
	uint32_t peer;
};

void source_open(struct source *source, uint32_t inflight);
/* No transfer may be left anywhere. */
void source_close(struct source *source);

/* Start `count` pages and run; token is sequence. */
struct fab_transfer *source_start(struct source *source, uint32_t flags,
				  uint64_t sequence, uint64_t count);
/* Complete all that was posted, well. */
void source_complete(struct source *source);
void source_release(struct source *source, struct fab_transfer *transfer);
/* DONE of this token is the next to be reaped. */
void source_expect_done(struct source *source, uint64_t token, int32_t status,
			uint32_t quiet);

/* The peer answers the newest announcement. */
void source_answer(struct source *source, int32_t status, uint64_t counted);
/* The newest announcement says this. */
void source_check_announced(struct source *source, uint64_t count,
			    int32_t status, uint32_t flags);
/* A message of the peer: a sign of life. */
void source_hear(struct source *source);

#endif

#include "source.h"

void source_open(struct source *source, uint32_t inflight)
{
	struct fake_limits limits = {
		.inflight_count = inflight,
		.operation_bytes = PAGE,
	};

	fake_open(&source->fake, NULL, &limits);
	source->peer = fake_peer(&source->fake);
	source->region = fake_region(&source->fake, 1 << 20);
}

struct fab_transfer *source_start(struct source *source, uint32_t flags,
				  uint64_t sequence, uint64_t count)
{
	struct fab_transfer *transfer =
		fake_start(&source->fake, source->peer, flags, sequence,
			   source->region, PAGE, count);

	fake_run(&source->fake);
	return transfer;
}

void source_complete(struct source *source)
{
	fake_complete_all(&source->fake, 0);
	fake_run(&source->fake);
}

void source_answer(struct source *source, int32_t status, uint64_t counted)
{
	const struct fake_post *announced =
		fake_last_frame(&source->fake, FAB_FRAME_ANNOUNCE);

	fake_answer(&source->fake, source->peer, announced, status, counted);
	fake_run(&source->fake);
}

void source_check_announced(struct source *source, uint64_t count,
			    int32_t status, uint32_t flags)
{
	const struct fake_post *post =
		fake_last_frame(&source->fake, FAB_FRAME_ANNOUNCE);

	CHECK(post->announce.count == count);
	CHECK(post->announce.status == status);
	CHECK(post->announce.flags == flags);
}

void source_expect_done(struct source *source, uint64_t token, int32_t status,
			uint32_t quiet)
{
	struct fab_completion done;

	fake_expect(&source->fake, FAB_TRANSFER_DONE, &done);
	CHECK(done.token == token && done.sequence == token);
	CHECK(done.peer == source->peer);
	if (done.status != status)
		fprintf(stderr, "status %d\n", done.status);
	CHECK(done.status == status);
	CHECK(done.quiet == quiet);
}

void source_release(struct source *source, struct fab_transfer *transfer)
{
	CHECK(!fab_transfer_release(source->fake.engine, transfer));
	fake_run(&source->fake);
}

void source_close(struct source *source)
{
	CHECK(source->fake.worker->outstanding ==
	      fake_slot(&source->fake, source->peer)->frames_out);
	CHECK(fake_registration(source->region)->transfers == 0);
	fake_close(&source->fake);
}

void source_hear(struct source *source)
{
	struct fab_completion received;

	fake_frame(&source->fake, source->peer, FAB_FRAME_MESSAGE, "x", 1);
	fake_run(&source->fake);
	fake_expect(&source->fake, FAB_FRAME_RECEIVED, &received);
}

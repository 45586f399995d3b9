/* op.h: the slab alone (O1, O3), then with completions (O1, O2). */
#include "fake_lane.h"

#include <string.h>

#define PAGE 4096u

/* O1: a slot is free, or given out once. */
static void test_o1_slots(void)
{
	struct fab_op *out[5];
	struct fab_op_slab slab;

	CHECK(!fab_op_slab_construct(&slab, 5));
	for (uint32_t i = 0; i < 5; i++) {
		out[i] = fab_op_alloc(&slab, FAB_OP_RMA);
		CHECK(out[i] && out[i]->posted && slab.used == i + 1);
		for (uint32_t j = 0; j < i; j++)
			CHECK(out[i] != out[j]);
	}
	CHECK(fab_op_alloc(&slab, FAB_OP_RMA) == NULL);
	fab_op_release(&slab, out[3]);
	CHECK(!out[3]->posted && slab.used == 4);
	CHECK(fab_op_alloc(&slab, FAB_OP_FRAME) == out[3]);
	CHECK(fab_op_alloc(&slab, FAB_OP_RMA) == NULL);
	fab_op_slab_destruct(&slab);
	CHECK(fab_op_alloc(&slab, FAB_OP_RMA) == NULL);
}

/* O3: the generation grows, and nothing of the last use is left. */
static void test_o3_generation(void)
{
	struct fab_op_slab slab;
	uint32_t before = 0;

	CHECK(!fab_op_slab_construct(&slab, 1));
	for (int i = 0; i < 100; i++) {
		struct fab_op *op = fab_op_alloc(&slab, FAB_OP_RMA);

		CHECK(op->generation == before + 1);
		before = op->generation;
		CHECK(!op->pages && !op->bytes && !op->peer && !op->part &&
		      !op->frame && !op->buffer);
		op->pages = 3;
		op->bytes = 4;
		op->part = (void *) op;
		op->peer = (void *) op;
		op->frame = (void *) op;
		op->buffer = (void *) op;
		fab_op_release(&slab, op);
	}
	fab_op_slab_destruct(&slab);
}

/* O1: an operation that the provider refused gives its slot back. */
static void test_o1_refused(void)
{
	struct fab_completion done;
	struct fab_region *region;
	struct fab_transfer *transfer;
	struct fake fake;
	uint32_t peer;

	fake_open(&fake, NULL, NULL);
	peer = fake_peer(&fake);
	region = fake_region(&fake, PAGE);
	fake.again = 3;
	transfer = fake_start(&fake, peer, 0, 1, region, PAGE, 1);
	for (int i = 0; i < 3; i++) {
		fake_pass(&fake);
		CHECK(fake.lane->ops.used == 0);
		CHECK(fake_count(&fake, FAKE_WRITE, 0) == 0);
	}
	fake_pass(&fake);
	CHECK(fake.lane->ops.used == 1);
	CHECK(fake_count(&fake, FAKE_WRITE, 0) == 1);
	fake_complete_all(&fake, 0);
	fake_pass(&fake);
	CHECK(fake.lane->ops.used == 0);
	fake_expect(&fake, FAB_TRANSFER_DONE, &done);
	CHECK(done.status == 0 && done.quiet);
	CHECK(!fab_transfer_release(fake.engine, transfer));
	fake_close(&fake);
}

/* O2: the context is the slot; a second completion of it is refused. */
static void test_o2_second_completion(void)
{
	struct fab_statistics statistics;
	struct fab_completion done;
	struct fab_region *region;
	struct fab_transfer *transfer;
	struct fake fake;
	uint32_t peer;

	fake_open(&fake, NULL, NULL);
	peer = fake_peer(&fake);
	region = fake_region(&fake, PAGE);
	transfer = fake_start(&fake, peer, 0, 1, region, PAGE, 2);
	fake_pass(&fake);
	CHECK(fake.post_count == 2);
	for (int i = 0; i < 2; i++) {
		struct fab_op *op = fake.posts[i].context;

		CHECK(op >= fake.lane->ops.ops &&
		      op < fake.lane->ops.ops + fake.lane->ops.capacity);
		CHECK(op->part == fake_part(transfer) && op->bytes == PAGE);
	}
	fake_complete(&fake, 0, 0);
	fake_pass(&fake);
	for (int err = 0; err <= FI_EIO; err += FI_EIO) {
		fake.posts[0].done = 0;
		fake_complete(&fake, 0, err);
		fake_pass(&fake);
	}
	CHECK(fab_transfer_bytes_done(transfer) == PAGE);
	fake_expect_none(&fake);
	fake_complete(&fake, 1, 0);
	fake_pass(&fake);
	fake_expect(&fake, FAB_TRANSFER_DONE, &done);
	CHECK(done.status == 0);
	fab_engine_statistics(fake.engine, &statistics);
	CHECK(statistics.stray_completions == 2);
	CHECK(!fab_transfer_release(fake.engine, transfer));
	fake_close(&fake);
}

/* O1: closing the endpoint ends what is out, frames too. */
static void test_o1_close_with_operations_out(void)
{
	struct fab_completion done;
	struct fab_region *region;
	struct fake fake;
	uint32_t peer;

	fake_open(&fake, NULL, NULL);
	peer = fake_peer(&fake);
	region = fake_region(&fake, PAGE);
	(void) fake_start(&fake, peer, 0, 1, region, PAGE, 3);
	CHECK(!fab_frame_send(fake.engine, peer, FAB_FRAME_MESSAGE, 9, "abc", 3,
			      NULL, 0));
	fake_pass(&fake);
	CHECK(fake.lane->ops.used == 4);
	fake_stop(&fake);
	fake_expect(&fake, FAB_TRANSFER_DONE, &done);
	CHECK(done.status == -FI_ECANCELED && done.quiet);
	fake_close(&fake);
}

int main(void)
{
	test_o1_slots();
	test_o3_generation();
	test_o1_refused();
	test_o2_second_completion();
	test_o1_close_with_operations_out();
	return 0;
}

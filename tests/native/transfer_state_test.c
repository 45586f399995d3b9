/* transfer.h: T1 to T5. */
#include "source.h"

#include <errno.h>

/* T1: one DONE, when nothing is out; each immediate names the transfer. */
static void test_t1_plain_write(void)
{
	struct source source;
	struct fab_transfer *transfer;

	source_open(&source, 64);
	transfer = source_start(&source, 0, 1, 3);
	CHECK(fake_count(&source.fake, FAKE_WRITE, 0) == 3);
	for (size_t i = 0; i < 3; i++) {
		CHECK(!source.fake.posts[i].has_immediate);
		CHECK(source.fake.posts[i].key == FAKE_KEY);
		CHECK(source.fake.posts[i].remote == 0x5000 + i * PAGE);
		CHECK(source.fake.posts[i].local == (1ull << 40) + i * PAGE);
		fake_expect_none(&source.fake);
		fake_complete(&source.fake, i, 0);
		fake_run(&source.fake);
		CHECK(fab_transfer_pages_done(transfer) == i + 1);
		CHECK(fab_transfer_bytes_done(transfer) == (i + 1) * PAGE);
	}
	source_expect_done(&source, 1, 0, 1);
	CHECK(fake_count(&source.fake, FAKE_SEND, 0) == 0);
	source_release(&source, transfer);
	source_close(&source);
}

static void test_t1_nothing_to_move(void)
{
	struct source source;
	struct fab_transfer *transfer;

	source_open(&source, 64);
	for (uint32_t flags = 0; flags < 4; flags++) {
		transfer = source_start(&source, flags, flags, 0);
		source_expect_done(&source, flags, 0, 1);
		source_release(&source, transfer);
	}
	CHECK(fake_count(&source.fake, FAKE_SEND, 0) == 0);
	/* But the peer's loop is told, if it is to be. */
	transfer = source_start(&source, WRITE | NOTIFY, 9, 0);
	source_check_announced(&source, 0, 0, FAB_ANNOUNCE_NOTIFY);
	fake_expect_none(&source.fake);
	source_answer(&source, 0, 0);
	source_expect_done(&source, 9, 0, 1);
	source_release(&source, transfer);
	source_complete(&source);
	source_close(&source);
}

/* T5: both the completions and the confirmation, in either order. */
static void test_t5_confirmed_write(int confirm_first)
{
	struct source source;
	struct fab_transfer *transfer;

	source_open(&source, 64);
	transfer = source_start(&source, WRITE, 1, 2);
	CHECK(source.fake.posts[0].has_immediate);
	CHECK(source.fake.posts[0].immediate ==
	      fab_immediate(FAKE_REMOTE_SLOT, 0, 0));
	source_check_announced(&source, 2, 0, 0);
	if (confirm_first)
		source_answer(&source, 0, 2);
	else
		source_complete(&source);
	fake_expect_none(&source.fake);
	if (confirm_first)
		source_complete(&source);
	else
		source_answer(&source, 0, 2);
	source_expect_done(&source, 1, 0, 1);
	source_release(&source, transfer);
	source_complete(&source);
	source_close(&source);
}

/* T5: a notification alone is not waited for. */
static void test_t5_read_and_notify_only(void)
{
	struct source source;
	struct fab_transfer *transfer;

	source_open(&source, 64);
	transfer = source_start(&source, FAB_TRANSFER_READ | NOTIFY, 1, 2);
	CHECK(fake_count(&source.fake, FAKE_READ, 0) == 2);
	CHECK(fake_count(&source.fake, FAKE_SEND, 0) == 0);
	source_complete(&source);
	source_expect_done(&source, 1, 0, 1);
	source_check_announced(&source, 0, 0, FAB_ANNOUNCE_NOTIFY);
	source_release(&source, transfer);
	CHECK(source.fake.worker->outstanding == 2); /* transfer and frame */
	source_answer(&source, 0, 0);
	transfer = source_start(&source, NOTIFY, 2, 2);
	source_check_announced(&source, 2, 0, FAB_ANNOUNCE_NOTIFY);
	source_complete(&source);
	source_expect_done(&source, 2, 0, 1);
	source_answer(&source, 0, 2);
	source_release(&source, transfer);
	source_close(&source);
}

/* T2: after an error nothing of it is posted, and DONE waits for what is out.
 * The peer learns how it ended only then, since no count was announced. */
static void test_t2_error(int err)
{
	struct source source;
	struct fab_transfer *transfer;

	source_open(&source, 4);
	transfer = source_start(&source, WRITE | NOTIFY, 1, 100);
	CHECK(fake_count(&source.fake, FAKE_WRITE, 0) == 4);
	fake_complete(&source.fake, 2, err);
	fake_complete(&source.fake, 0, 0);
	fake_run(&source.fake);
	CHECK(source.fake.post_count == 4);
	fake_expect_none(&source.fake);
	fake_complete(&source.fake, 3, err);
	fake_complete(&source.fake, 1, 0);
	fake_run(&source.fake);
	source_expect_done(&source, 1, err < 0 ? err : -err, 1);
	CHECK(fab_transfer_pages_done(transfer) == 2);
	CHECK(fake_count(&source.fake, FAKE_WRITE, 0) == 4);
	source_check_announced(&source, 4, err < 0 ? err : -err,
			       FAB_ANNOUNCE_NOTIFY | FAB_ANNOUNCE_UNCOUNTED);
	source_release(&source, transfer);
	source_answer(&source, 0, 3);
	source_complete(&source);
	source_close(&source);
}

/* T2: a post that fails: nothing more is posted, and the count is known. */
static void test_t2_post_fails(size_t n)
{
	struct source source;
	struct fab_transfer *transfer;

	source_open(&source, 64);
	source.fake.fail_at = n;
	source.fake.fail_code = -FI_EINVAL;
	transfer = source_start(&source, WRITE, 1, 9);
	CHECK(fake_count(&source.fake, FAKE_WRITE, 0) == n);
	source_complete(&source);
	source_expect_done(&source, 1, -FI_EINVAL, 1);
	source_check_announced(&source, n, -FI_EINVAL, 0);
	source_release(&source, transfer);
	source_answer(&source, 0, n);
	source_complete(&source);
	source_close(&source);
}

/* T2 and T1: a cancel at each stage; DONE once. */
static void test_t2_cancel(uint64_t completed)
{
	struct source source;
	struct fab_transfer *transfer;

	source_open(&source, 4);
	transfer = source_start(&source, WRITE, 1, 100);
	for (uint64_t i = 0; i < completed; i++)
		fake_complete(&source.fake, i, 0);
	CHECK(!fab_transfer_cancel(source.fake.engine, transfer));
	fab_reap_pass(source.fake.worker, source.fake.lane);
	fake_run(&source.fake);
	CHECK(fake_count(&source.fake, FAKE_WRITE, 0) == 4);
	source_complete(&source);
	source_expect_done(&source, 1, -FI_ECANCELED, 1);
	source_check_announced(&source, 4, -FI_ECANCELED, 0);
	CHECK(!fab_transfer_cancel(source.fake.engine, transfer)); /* late */
	source_release(&source, transfer);
	source_answer(&source, 0, 4);
	fake_expect_none(&source.fake);
	source_complete(&source);
	source_close(&source);
}

static void test_t2_cancel_after_done(void)
{
	struct source source;
	struct fab_transfer *transfer;

	source_open(&source, 4);
	transfer = source_start(&source, 0, 1, 2);
	source_complete(&source);
	CHECK(!fab_transfer_cancel(source.fake.engine, transfer));
	fake_run(&source.fake);
	source_expect_done(&source, 1, 0, 1);
	fake_expect_none(&source.fake);
	source_release(&source, transfer);
	source_close(&source);
}

/* T3: the region goes when the last transfer that holds it is quiet. */
static void test_t3_region(void)
{
	struct source source;
	struct fab_transfer *one, *two;
	struct fab_completion completion;

	source_open(&source, 64);
	one = source_start(&source, 0, 1, 1);
	two = source_start(&source, 0, 2, 1);
	CHECK(fake_registration(source.region)->transfers == 2);
	CHECK(!fab_region_deregister(source.fake.engine, source.region));
	fake_run(&source.fake);
	CHECK(source.fake.mr_closed == 0);
	fake_complete(&source.fake, 0, 0);
	fake_run(&source.fake);
	source_expect_done(&source, 1, 0, 1);
	fake_expect_none(&source.fake);
	CHECK(source.fake.mr_closed == 0);
	fake_complete(&source.fake, 1, 0);
	fake_run(&source.fake);
	source_expect_done(&source, 2, 0, 1);
	fake_expect(&source.fake, FAB_REGION_DEREGISTERED, &completion);
	CHECK(source.fake.mr_closed == 1);
	source_release(&source, one);
	source_release(&source, two);
	fake_close(&source.fake);
}

/* T1 and T3: operations that never complete. DONE is not quiet, and the region
 * stays; QUIET follows when they come back after all. */
static void test_t1_never_completes(void)
{
	struct source source;
	struct fab_transfer *transfer;
	struct fab_completion completion;

	source_open(&source, 64);
	transfer = source_start(&source, WRITE, 1, 2);
	fake_complete(&source.fake, 0, 0);
	fake_run(&source.fake);
	for (int i = 0; i < 7; i++) {
		/* Only this operation is stuck: the peer is there. */
		source_hear(&source);
		fake_tick(&source.fake, TIMEOUT / 8);
	}
	fake_expect_none(&source.fake);
	fake_tick(&source.fake, TIMEOUT / 8);
	source_expect_done(&source, 1, -FI_ETIMEDOUT, 0);
	CHECK(fake_registration(source.region)->transfers == 1);
	CHECK(!fab_region_deregister(source.fake.engine, source.region));
	fake_run(&source.fake);
	fake_expect_none(&source.fake);
	fake_complete(&source.fake, 1, 0);
	fake_run(&source.fake);
	for (int i = 0; i < 2; i++) {
		CHECK(fake_reap(&source.fake, &completion));
		CHECK(completion.kind == FAB_TRANSFER_QUIET ||
		      completion.kind == FAB_REGION_DEREGISTERED);
		if (completion.kind == FAB_TRANSFER_QUIET)
			CHECK(completion.token == 1);
	}
	fake_expect_none(&source.fake);
	source_release(&source, transfer);
	fake_close(&source.fake);
}

/* T4: reported and released, it lives on until the peer has answered. */
static void test_t4_released_before_the_answer(void)
{
	struct source source;
	struct fab_transfer *transfer;

	source_open(&source, 64);
	transfer = source_start(&source, NOTIFY, 1, 2);
	fake_complete(&source.fake, 0, 0);
	fake_complete(&source.fake, 1, 0);
	fake_run(&source.fake);
	source_expect_done(&source, 1, 0, 1);
	source_release(&source, transfer);
	CHECK(source.fake.worker->outstanding == 2);
	fake_tick(&source.fake, TIMEOUT / 8);
	fake_run(&source.fake);
	source_check_announced(&source, 2, 0,
			       FAB_ANNOUNCE_NOTIFY | FAB_ANNOUNCE_QUERY);
	source_answer(&source, 0, 2);
	source_complete(&source);
	CHECK(source.fake.worker->outstanding == 0);
	source_close(&source);
}

/* T5: the peer proves the key, whether that takes longer or the data. */
static void test_t5_confirmed_read(void)
{
	struct source source;

	source_open(&source, 64);
	for (uint64_t i = 0; i < 2; i++) {
		struct fab_transfer *transfer =
			source_start(&source, FAB_TRANSFER_READ | WRITE, i, 2);

		source_check_announced(&source, 0, 0, 0);
		if (i)
			source_complete(&source);
		else
			source_answer(&source, 0, 0);
		fake_expect_none(&source.fake);
		if (i)
			source_answer(&source, 0, 0);
		else
			source_complete(&source);
		source_expect_done(&source, i, 0, 1);
		source_release(&source, transfer);
	}
	source_complete(&source);
	source_close(&source);
}

/* T1: the provider takes nothing, though the peer is there. */
static void test_t1_never_posted(void)
{
	struct source source;
	struct fab_transfer *transfer;

	source_open(&source, 64);
	source.fake.again = SIZE_MAX;
	transfer = source_start(&source, 0, 1, 2);
	for (int i = 0; i < 8; i++) {
		fake_expect_none(&source.fake);
		source_hear(&source);
		fake_tick(&source.fake, TIMEOUT / 8);
		fake_run(&source.fake);
	}
	source_expect_done(&source, 1, -FI_ETIMEDOUT, 1);
	CHECK(source.fake.post_count == 0);
	source.fake.again = 0;
	fake_run(&source.fake);
	CHECK(source.fake.post_count == 0);
	source_release(&source, transfer);
	source_close(&source);
}

int main(void)
{
	test_t1_plain_write();
	test_t1_nothing_to_move();
	test_t5_confirmed_write(0);
	test_t5_confirmed_write(1);
	test_t5_confirmed_read();
	test_t5_read_and_notify_only();
	test_t2_error(FI_EIO);
	test_t2_error(-FI_EACCES); /* some providers say it negatively */
	test_t2_post_fails(0);
	test_t2_post_fails(1);
	test_t2_post_fails(8);
	for (uint64_t completed = 0; completed <= 4; completed++)
		test_t2_cancel(completed);
	test_t2_cancel_after_done();
	test_t3_region();
	test_t1_never_completes();
	test_t1_never_posted();
	test_t4_released_before_the_answer();
	return 0;
}

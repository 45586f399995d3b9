/* confirm.h on the source: C1, C4 to C6. */
#include "source.h"

/* C4: queries while the peer says nothing, then giving up. */
static void test_c4_silence(void)
{
	struct source source;
	struct fab_transfer *transfer;
	size_t queries = 0;

	source_open(&source, 64);
	transfer = source_start(&source, WRITE, 1, 2);
	source_complete(&source);
	for (int i = 0; i < 8; i++) {
		source_hear(&source);
		fake_tick(&source.fake, TIMEOUT / 8);
		fake_run(&source.fake);
		source_complete(&source);
		source_check_announced(&source, 2, 0, FAB_ANNOUNCE_QUERY);
		CHECK(fake_count_frames(&source.fake, FAB_FRAME_ANNOUNCE, 0) ==
		      ++queries + 1);
	}
	fake_expect_none(&source.fake);
	source_hear(&source);
	fake_tick(&source.fake, TIMEOUT / 8);
	fake_run(&source.fake);
	source_expect_done(&source, 1, -FI_ETIMEDOUT, 1);
	source_check_announced(&source, 2, -FI_ETIMEDOUT,
			       FAB_ANNOUNCE_UNCOUNTED);
	source_release(&source, transfer);
	source_answer(&source, 0, 2);
	source_complete(&source);
	source_close(&source);
}

/* The peer counts less than was posted, and says so again and again. */
static void miss_one(struct source *source)
{
	for (int i = 0; i < 3; i++) {
		fake_tick(&source->fake, TIMEOUT / 8);
		fake_run(&source->fake);
		source_answer(source, -FI_EAGAIN, 1);
		source_complete(source);
	}
}

static void test_c6_count_stays_short(void)
{
	struct source source;
	struct fab_transfer *transfer;

	source_open(&source, 64);
	transfer = source_start(&source, WRITE, 1, 2);
	source_complete(&source);
	miss_one(&source);
	source_expect_done(&source, 1, -FI_EIO, 1);
	source_check_announced(&source, 2, -FI_EIO, FAB_ANNOUNCE_UNCOUNTED);
	source_release(&source, transfer);
	source_answer(&source, 0, 1);
	source_complete(&source);
	source_close(&source);
}

/* C6: it was done well here, without a confirmation; the peer must not take
 * it for arrived all the same. */
static void test_c6_notify_only(void)
{
	struct source source;
	struct fab_transfer *transfer;

	source_open(&source, 64);
	transfer = source_start(&source, NOTIFY, 1, 2);
	source_complete(&source);
	source_expect_done(&source, 1, 0, 1);
	miss_one(&source);
	source_check_announced(&source, 2, -FI_EIO,
			       FAB_ANNOUNCE_NOTIFY | FAB_ANNOUNCE_UNCOUNTED);
	source_release(&source, transfer);
	source_answer(&source, 0, 1);
	source_complete(&source);
	source_close(&source);
}

/* C1: transfer slots; all out, the rest waits and is admitted in order. */
static void test_c1_slots_run_out(void)
{
	enum { MANY = FAB_TRANSFER_SLOTS + 3 };
	static struct fab_transfer *transfers[MANY];
	static uint32_t immediates[MANY];
	struct source source;

	source_open(&source, 3000);
	for (uint64_t i = 0; i < MANY; i++)
		transfers[i] = source_start(&source, WRITE, i, 1);
	CHECK(fake_count(&source.fake, FAKE_WRITE, 0) == FAB_TRANSFER_SLOTS);
	for (size_t i = 0, n = 0; i < source.fake.post_count; i++) {
		if (source.fake.posts[i].kind == FAKE_WRITE)
			immediates[n++] = source.fake.posts[i].immediate;
	}
	for (size_t i = 0; i < FAB_TRANSFER_SLOTS; i++)
		CHECK(fab_immediate_slot(immediates[i]) == i);
	source_complete(&source);
	for (uint64_t i = 0; i < MANY; i++) {
		struct fab_confirm confirm = {
			.sequence = i,
			.counted = 1,
			.immediate = i < FAB_TRANSFER_SLOTS ?
					     immediates[i] :
					     fab_immediate(
						     FAKE_REMOTE_SLOT,
						     (uint32_t) i -
							     FAB_TRANSFER_SLOTS,
						     1),
		};

		fake_frame(&source.fake, source.peer, FAB_FRAME_CONFIRM,
			   &confirm, sizeof(confirm));
		fake_run(&source.fake);
		source_complete(&source);
		source_expect_done(&source, i, 0, 1);
		source_release(&source, transfers[i]);
	}
	CHECK(fake_count(&source.fake, FAKE_WRITE, 0) == MANY);
	source_close(&source);
}

/* C1: a confirmation of an older use of the slot does nothing. */
static void test_c1_stale_confirmations(void)
{
	struct source source;

	source_open(&source, 64);
	for (uint64_t i = 0; i < 16 * 70; i++) {
		struct fab_transfer *transfer =
			source_start(&source, WRITE, i, 1);
		struct fake_post last =
			*fake_last_frame(&source.fake, FAB_FRAME_ANNOUNCE);

		CHECK(fab_immediate_slot(last.announce.immediate) == i % 16);
		CHECK(fab_immediate_generation(last.announce.immediate) ==
		      i / 16 % 64);
		source_complete(&source);
		last.announce.sequence += 16 * 64; /* as 64 uses ago */
		fake_answer(&source.fake, source.peer, &last, 0, 1);
		last.announce.sequence = i;
		last.announce.immediate ^= 1; /* another generation */
		fake_answer(&source.fake, source.peer, &last, 0, 1);
		fake_run(&source.fake);
		fake_expect_none(&source.fake);
		source_answer(&source, 0, 1);
		source_expect_done(&source, i, 0, 1);
		source_answer(&source, 0, 1); /* once more: stale */
		fake_expect_none(&source.fake);
		source_release(&source, transfer);
		source.fake.post_count = 0;
	}
	CHECK(atomic_load(&source.fake.worker->statistics.stale_frames) ==
	      3 * 16 * 70);
	source_close(&source);
}

/* C5: the peer refuses the key. */
static void test_c5_refused(uint32_t flags)
{
	struct source source;
	struct fab_transfer *transfer;

	source_open(&source, 64);
	transfer = source_start(&source, flags | WRITE, 1, 2);
	CHECK(fake_last_frame(&source.fake, FAB_FRAME_ANNOUNCE)
		      ->announce.access == (flags & FAB_TRANSFER_READ ?
						    FAB_ACCESS_REMOTE_READ :
						    FAB_ACCESS_REMOTE_WRITE));
	CHECK(fake_last_frame(&source.fake, FAB_FRAME_ANNOUNCE)->announce.key ==
	      FAKE_KEY);
	source_answer(&source, -FI_ENOKEY, 0);
	fake_expect_none(&source.fake); /* its memory is in use */
	source_complete(&source);
	source_expect_done(&source, 1, -FI_ENOKEY, 1);
	source_release(&source, transfer);
	source_close(&source);
}

/* A status that no peer of ours sends. */
static void test_c5_positive_status(void)
{
	struct source source;
	struct fab_completion completion;

	source_open(&source, 64);
	(void) source_start(&source, WRITE, 1, 1);
	source_complete(&source);
	source_answer(&source, 5, 0);
	while (fake_reap(&source.fake, &completion))
		CHECK(completion.status <= 0);
	fake_close(&source.fake);
}

int main(void)
{
	test_c4_silence();
	test_c6_count_stays_short();
	test_c5_refused(0);
	test_c5_refused(FAB_TRANSFER_READ);
	test_c1_slots_run_out();
	test_c1_stale_confirmations();
	test_c6_notify_only();
	test_c5_positive_status();
	return 0;
}

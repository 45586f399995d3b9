/* Regions: registered, held by transfers (T3), deregistered; and the memory is
 * the caller's again only when FAB_REGION_DEREGISTERED is there to reap. */
#include "fake_lane.h"

static size_t told; /* DEREGISTERED in the ring when an MR was closed */

static void look_on_close(struct fake *fake)
{
	struct fab_completion completion;

	while (fake_reap(fake, &completion))
		told += completion.kind == FAB_REGION_DEREGISTERED;
}

static void deregister(struct fake *fake, struct fab_region *region)
{
	CHECK(!fab_region_deregister(fake->engine, region));
	fake_run(fake);
}

static void test_registered(void)
{
	struct fab_completion completion;
	struct fab_region *region;
	struct fake fake;

	fake_open(&fake, NULL, NULL);
	CHECK(fab_region_register(fake.engine, 1, 4096, 0, 0, 5, 1, &region) ==
	      -FI_EINVAL);
	CHECK(fab_region_register(fake.engine, 1, 4096, 1, 0, 5, 2, &region) ==
	      -FI_EINVAL); /* no such worker */
	region = fake_region(&fake, 100);
	CHECK(fab_region_key(region, 0, 0) == FAKE_KEY);
	CHECK(fab_region_key(region, 0, 1) == 0); /* no such lane */
	CHECK(fab_region_key(region, 1, 0) == 0); /* no such worker */
	CHECK(fab_region_base(region) == 0);
	deregister(&fake, region);
	fake_expect(&fake, FAB_REGION_DEREGISTERED, &completion);
	CHECK(completion.token == 2 && fake.mr_closed == 1);
	fake.lane->virtual_addresses = 1;
	region = fake_region(&fake, 100);
	CHECK(fab_region_base(region) == 1ull << 40);
	fake_close(&fake);
}

static struct fab_region *register_in_vain(struct fake *fake)
{
	struct fab_completion completion;
	struct fab_region *region;

	fake->mr_code = -FI_ENOMEM;
	CHECK(!fab_region_register(fake->engine, 8, 4096, 1, 0, 5, 1, &region));
	fake_run(fake);
	fake_expect(fake, FAB_REGION_REGISTERED, &completion);
	CHECK(completion.token == 8 && completion.status == -FI_ENOMEM);
	fake->mr_code = 0;
	return region;
}

/* A registration that failed is deregistered like any other. */
static void test_failed_and_deregistered(void)
{
	struct fab_completion completion;
	struct fake fake;

	fake_open(&fake, NULL, NULL);
	deregister(&fake, register_in_vain(&fake));
	fake_expect(&fake, FAB_REGION_DEREGISTERED, &completion);
	CHECK(completion.token == 8 && fake.mr_closed == 0);
	fake_close(&fake);
}

/* T3 at the end of all: transfers are out, and the engine stops. */
static void test_t3_stop(void)
{
	struct fab_completion completion;
	struct fab_region *region;
	struct fake fake;
	int kinds = 0;

	fake_open(&fake, NULL, NULL);
	region = fake_region(&fake, 1000);
	(void) fake_start(&fake, fake_peer(&fake), 0, 1, region, 10, 3);
	fake_run(&fake);
	deregister(&fake, region);
	fake_expect_none(&fake);
	fake_stop(&fake);
	CHECK(fake.mr_closed == 1);
	while (fake_reap(&fake, &completion))
		kinds |= 1 << completion.kind;
	CHECK(kinds == (1 << FAB_TRANSFER_DONE | 1 << FAB_REGION_DEREGISTERED));
	fake_close(&fake);
}

/* The NIC has let go before the loop is told. */
static void test_closed_before_told(void)
{
	struct fab_completion completion;
	struct fab_region *region;
	struct fake fake;

	fake_open(&fake, NULL, NULL);
	region = fake_region(&fake, 100);
	fake.on_mr_close = look_on_close;
	deregister(&fake, region);
	CHECK(fake.mr_closed == 1 && told == 0);
	fake_expect(&fake, FAB_REGION_DEREGISTERED, &completion);
	fake_close(&fake);
}

/* One that nobody deregisters goes with the engine, failed or not. */
static void test_left_behind(void)
{
	struct fake fake;

	fake_open(&fake, NULL, NULL);
	(void) fake_region(&fake, 100);
	(void) register_in_vain(&fake);
	fake_close(&fake);
}

int main(void)
{
	test_registered();
	test_failed_and_deregistered();
	test_t3_stop();
	test_closed_before_told();
	test_left_behind();
	return 0;
}

/* address.h: V1 to V3, on a scripted lane whose neighbours are files. */
#include "address.h"

#include "endpoint_file.h"
#include "fake_lane.h"
#include "places.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define LOOK_NS 250000000ull

struct place_holder {
	struct fake fake;
	struct fab_lane *lane;
	struct endpoint_file mine;
	uint64_t now_ns;
};

static void holder_open(struct place_holder *holder)
{
	static char nobody; /* visits go to endpoints of this process only */

	fake_open(&holder->fake, NULL, NULL);
	holder->lane = holder->fake.lane;
	holder->now_ns = LOOK_NS;
	file_make(&holder->mine, -1, "mine");
	holder->lane->local = (void *) &nobody;
	holder->lane->places = fab_places_open(holder->mine.name);
	CHECK(holder->lane->places);
}

static void holder_close(struct place_holder *holder)
{
	fab_addresses_purge(holder->lane, 1);
	CHECK(!holder->fake.addresses);
	fab_places_close(holder->lane->places);
	holder->lane->places = NULL;
	holder->lane->local = NULL;
	file_remove(&holder->mine);
	fake_close(&holder->fake);
}

/* What the AV has after so many looks. */
static size_t look(struct place_holder *holder, uint32_t times)
{
	for (uint32_t i = 0; i < times; i++) {
		holder->now_ns += LOOK_NS;
		fab_addresses_tidy(holder->lane, holder->now_ns);
		/* Too soon for another one. */
		fab_addresses_tidy(holder->lane, holder->now_ns + LOOK_NS - 1);
	}
	return holder->fake.addresses;
}

static struct fab_address *add(struct place_holder *holder, const char *name)
{
	struct fab_address *address;
	char uri[128];
	int length = snprintf(uri, sizeof(uri), "fi_shm://%s", name);

	CHECK(!fab_address_add(holder->lane, uri, (uint32_t) length + 1,
			       &address));
	return address;
}

static void test_v1_closed(void)
{
	struct place_holder holder;
	struct endpoint_file other;
	struct fab_address *address;

	holder_open(&holder);
	file_make(&other, getpid(), "other");
	address = add(&holder, other.name);
	CHECK(add(&holder, other.name) == address);
	fab_address_release(holder.lane, address);
	fab_address_release(holder.lane, address);
	CHECK(look(&holder, 3) == 1);
	CHECK(add(&holder, other.name) == address);
	shm_unlink(other.name);
	CHECK(look(&holder, 3) == 1); /* it is used */
	fab_address_release(holder.lane, address);
	CHECK(look(&holder, 1) == 1);
	CHECK(look(&holder, 1) == 0);
	file_remove(&other);
	holder_close(&holder);
}

static void test_v1_killed(void)
{
	struct place_holder holder;
	struct endpoint_file other;

	holder_open(&holder);
	file_make(&other, ended_process(), "killed");
	fab_address_release(holder.lane, add(&holder, other.name));
	CHECK(look(&holder, 1) == 1);
	CHECK(look(&holder, 1) == 0);
	file_remove(&other);
	holder_close(&holder);
}

/* Who was not there yet is not gone for that: an address may come before. */
static void test_v1_late(void)
{
	struct place_holder holder;
	struct endpoint_file other;
	struct fab_address *address;

	holder_open(&holder);
	file_make(&other, getpid(), "late");
	shm_unlink(other.name);
	address = add(&holder, other.name);
	file_remove(&other);
	file_make(&other, getpid(), "late");
	fab_address_release(holder.lane, address);
	CHECK(look(&holder, 3) == 1);
	CHECK(add(&holder, other.name) == address);
	fab_address_release(holder.lane, address);
	file_remove(&other);
	CHECK(look(&holder, 2) == 0);
	holder_close(&holder);
}

static void test_v2_another(void)
{
	struct place_holder holder;
	struct endpoint_file other, another;
	struct fab_address *address;
	uint64_t file;

	holder_open(&holder);
	file_make(&other, getpid(), "other");
	address = add(&holder, other.name);
	file = address->file;
	CHECK(file && file == fab_place_file(other.name));
	fab_address_release(holder.lane, address);
	shm_unlink(other.name);
	file_make(&another, getpid(), "other");
	address = add(&holder, another.name);
	CHECK(address->file == fab_place_file(another.name));
	CHECK(address->file != file && holder.fake.addresses == 1);

	/* Not asked for again, it goes all the same. */
	fab_address_release(holder.lane, address);
	shm_unlink(another.name);
	munmap(other.bytes, FILE_BYTES);
	file_make(&other, getpid(), "other");
	CHECK(look(&holder, 2) == 0);
	file_remove(&another);
	file_remove(&other);
	holder_close(&holder);
}

/* Who has a place and no address: given back once so many others have come. */
static void test_v3(void)
{
	struct place_holder holder;
	struct endpoint_file stranger, known;
	char name[64];

	holder_open(&holder);
	file_make(&stranger, getpid(), "stranger");
	file_make(&known, getpid(), "known");
	meet(&holder.mine, 3, stranger.bytes);
	meet(&holder.mine, 4, known.bytes);
	add(&holder, known.name);
	shm_unlink(stranger.name);
	shm_unlink(known.name);
	for (int i = 0; i < 63; i++) {
		CHECK(place(&holder.mine, 3)->local_region);
		snprintf(name, sizeof(name), "%d:native_test.%d",
			 (int) getpid(), i);
		add(&holder, name);
		look(&holder, 3);
	}
	CHECK(!place(&holder.mine, 3)->local_region);
	CHECK(place(&holder.mine, 4)->local_region); /* it is used */
	CHECK(holder.fake.addresses == 64);
	for (struct fab_link *link = holder.lane->addresses.next;
	     link != &holder.lane->addresses; link = link->next)
		FAB_ENTRY(link, struct fab_address, link)->references = 0;
	file_remove(&stranger);
	file_remove(&known);
	holder_close(&holder);
}

/* Q1: where places cannot be cleared, nothing goes before the lane does. */
static void test_unknown_layout(void)
{
	struct place_holder holder;
	struct fab_places *places;

	holder_open(&holder);
	places = holder.lane->places;
	holder.lane->places = NULL;
	fab_address_release(holder.lane, add(&holder, "1:native_test.gone"));
	CHECK(look(&holder, 3) == 1);
	holder.lane->places = places;
	holder_close(&holder);
}

int main(void)
{
	test_v1_closed();
	test_v1_killed();
	test_v1_late();
	test_v2_another();
	test_v3();
	test_unknown_layout();
	return 0;
}

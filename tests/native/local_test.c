/* local.h: several engines in one process, each connected with each other and
 * with itself, closed in every order. argv[1] names the provider; X1 to X5 say
 * something for shared memory only, and crash there if they do not hold. */
#include "pair.h"

#include <rdma/fi_errno.h>
#include <string.h>

#define SIDES 3
#define GONE  8
#define LARGE 30000u /* more than the provider carries inline */

struct group {
	struct side sides[SIDES];
	uint32_t peers[SIDES][SIDES];
	uint32_t open; /* bit mask */
	unsigned char memory[SIDES][LARGE];
	struct fab_region *regions[SIDES];
	uint64_t sequence;
};

static unsigned char out[LARGE];

static void add_begin(struct group *group, int from, int to)
{
	const struct side *other = &group->sides[to];
	unsigned char address[256];
	uint32_t lanes = 1;

	CHECK(!fab_engine_address(other->engine, 0, 0, address,
				  sizeof(address)));
	CHECK(!fab_peer_add(group->sides[from].engine, 1, 100, address,
			    other->attributes.address_bytes, &lanes, 1));
}

static void add_end(struct group *group, int from, int to)
{
	struct fab_completion added;

	side_await(&group->sides[from], FAB_PEER_ADDED, &added);
	CHECK(added.status == 0);
	group->peers[from][to] = added.peer;
}

static void add(struct group *group, int from, int to)
{
	add_begin(group, from, to);
	add_end(group, from, to);
}

static void attach(struct group *group, int from, int to)
{
	uint32_t slot = fab_peer_slot(group->sides[to].engine,
				      group->peers[to][from], 0);

	CHECK(!fab_peer_attach(group->sides[from].engine,
			       group->peers[from][to], &slot, 1, 100, 0));
}

static void message(struct group *group, int from, int to)
{
	struct fab_completion received;

	for (size_t i = 0; i < sizeof(out); i++)
		out[i] = (unsigned char) (i * 7 + (size_t) (from * 3 + to));
	CHECK(!fab_frame_send(group->sides[from].engine, group->peers[from][to],
			      FAB_FRAME_MESSAGE, 0, out, 100, out + 100,
			      LARGE - 100));
	side_await(&group->sides[to], FAB_FRAME_RECEIVED, &received);
	CHECK(received.peer == group->peers[to][from]);
	CHECK(received.bytes == LARGE && !memcmp(received.data, out, LARGE));
}

static void move(struct group *group, int from, int to)
{
	struct fab_pages pages = {
		.page_bytes = LARGE,
		.count = 1,
		.local_bytes = LARGE,
		.remote_bytes = LARGE,
	};
	uint64_t key;
	struct fab_remote remote = side_remote(group->regions[to], &key);
	struct fab_transfer *transfer;
	struct fab_completion done;

	memset(group->memory[from], from * 16 + to + 1, LARGE);
	CHECK(!fab_transfer_start(group->sides[from].engine,
				  group->peers[from][to], FAB_TRANSFER_CONFIRM,
				  1, group->sequence++, group->regions[from],
				  &remote, &pages, &transfer));
	side_await(&group->sides[from], FAB_TRANSFER_DONE, &done);
	CHECK(done.status == 0);
	CHECK(!memcmp(group->memory[from], group->memory[to], LARGE));
	CHECK(!fab_transfer_release(group->sides[from].engine, transfer));
}

/* X3: large messages and pages right after the peers were added, both ways. */
static void talk(struct group *group)
{
	for (int a = 0; a < SIDES; a++) {
		for (int b = 0; b < SIDES; b++) {
			if (!(group->open >> a & 1) || !(group->open >> b & 1))
				continue;
			message(group, a, b);
			if (a != b)
				move(group, a, b);
		}
	}
}

static void open_sides(struct group *group, const char *provider, int first,
		       int end)
{
	struct fab_options options = {.peer_timeout_ns = 5000000000ull};

	for (int i = first; i < end; i++) {
		side_open(&group->sides[i], provider, &options);
		group->regions[i] =
			side_register(&group->sides[i], group->memory[i], LARGE,
				      FAB_ACCESS_REMOTE_WRITE);
		group->open |= 1u << i;
	}
}

static void open_group(struct group *group, const char *provider)
{
	open_sides(group, provider, 0, SIDES);
	for (int a = 0; a < SIDES; a++) {
		for (int b = 0; b < SIDES; b++)
			add(group, a, b);
	}
	for (int a = 0; a < SIDES; a++) {
		for (int b = 0; b < SIDES; b++)
			attach(group, a, b);
	}
}

/* X1 and X2: one closes, the others go on with each other. */
static void test_closed_in_order(const char *provider, const int *order)
{
	struct group *group = calloc(1, sizeof(*group));

	CHECK(group);
	open_group(group, provider);
	talk(group);
	for (int i = 0; i < SIDES; i++) {
		side_close(&group->sides[order[i]]);
		group->open &= ~(1u << order[i]);
		talk(group);
	}
	free(group);
}

/* X4: forgotten and added again, the address is the one it was. */
static void test_x4_again(const char *provider)
{
	struct group *group = calloc(1, sizeof(*group));
	struct fab_completion removed;

	CHECK(group);
	open_group(group, provider);
	for (int round = 0; round < 3; round++) {
		talk(group);
		for (int i = 0; i < 2; i++) {
			CHECK(!fab_peer_remove(group->sides[i].engine,
					       group->peers[i][1 - i]));
			side_await(&group->sides[i], FAB_PEER_REMOVED,
				   &removed);
		}
		for (int i = 0; i < 2; i++)
			add(group, i, 1 - i);
		for (int i = 0; i < 2; i++)
			attach(group, i, 1 - i);
	}
	talk(group);
	for (int i = 0; i < SIDES; i++)
		side_close(&group->sides[i]);
	free(group);
}

/* X1: the address of an endpoint that is about to close, or has closed. Adding
 * it may fail, or what is sent is lost; the process lives. */
static void test_x1_closing(const char *provider, int when)
{
	struct fab_options options = {.peer_timeout_ns = 1000000000ull};
	struct fab_completion added;
	unsigned char address[256];
	struct side sides[2];
	uint32_t lanes = 1;
	uint32_t bytes;

	for (int i = 0; i < 2; i++)
		side_open(&sides[i], provider, &options);
	bytes = sides[0].attributes.address_bytes;
	CHECK(!fab_engine_address(sides[0].engine, 0, 0, address,
				  sizeof(address)));
	if (when == 0) {
		fab_engine_close(sides[0].engine);
	} else if (when == 1) {
		fab_engine_stop(sides[0].engine);
	}
	CHECK(!fab_peer_add(sides[1].engine, 1, 1, address, bytes, &lanes, 1));
	side_await(&sides[1], FAB_PEER_ADDED, &added);
	fab_error_free(added.error);
	if (!added.status)
		CHECK(!fab_frame_send(sides[1].engine, added.peer,
				      FAB_FRAME_HELLO, 0, "hello", 5, NULL, 0));
	if (when)
		fab_engine_close(sides[0].engine);
	fab_engine_close(sides[1].engine);
}

/* X5: while one is greeted, addresses of those that have closed are removed, for
 * which the CQ is read. */
static void test_x5_removal(const char *provider)
{
	struct group *group = calloc(1, sizeof(*group));
	uint32_t gone[GONE];

	CHECK(group);
	for (int i = 0; i < GONE; i++) {
		open_sides(group, provider, i ? 1 : 0, 2);
		add(group, 0, 1);
		gone[i] = group->peers[0][1];
		side_close(&group->sides[1]);
	}
	open_sides(group, provider, 1, 2);
	add_begin(group, 0, 1);
	for (int i = 0; i < GONE; i++)
		CHECK(!fab_peer_remove(group->sides[0].engine, gone[i]));
	add_end(group, 0, 1);
	add(group, 1, 0);
	attach(group, 0, 1);
	attach(group, 1, 0);
	message(group, 0, 1);
	message(group, 1, 0);
	move(group, 0, 1);
	move(group, 1, 0);
	for (int i = 0; i < 2; i++)
		side_close(&group->sides[i]);
	free(group);
}

int main(int argc, char **argv)
{
	const char *provider = argc > 1 ? argv[1] : "shm";
	static const int orders[][SIDES] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
					    {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};

	for (size_t i = 0; i < sizeof(orders) / sizeof(orders[0]); i++)
		test_closed_in_order(provider, orders[i]);
	test_x4_again(provider);
	for (int round = 0; round < 30; round++)
		test_x1_closing(provider, round % 3);
	for (int round = 0; round < 30; round++)
		test_x5_removal(provider);
	return 0;
}

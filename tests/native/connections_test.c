/* connections.h, sockets.h: N1 to N3 over real sockets. A peer is silenced by
 * taking its worker's lock. */
#include "connections.h"

#include "engine.h"
#include "pair.h"
#include "sockets.h"

#include <errno.h>
#include <netinet/in.h>
#include <rdma/fi_errno.h>
#include <sched.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define PAGE       (256u << 10)
#define PAGES      64u /* more than the sockets' buffers take */
#define BEAT_NS    10000000ull
#define TIMEOUT_NS 2000000000ull
#define PATIENCE_S 20

static unsigned char source[PAGES * PAGE], target[PAGES * PAGE];
static int64_t places[PAGES];

/* libfabric 2.5 loses a few bytes when both sides connect at once, and with the
 * handle of a connection that ends before it was opened. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
	return "leak:libfabric.so\n";
}

static struct fab_worker *worker_of(const struct side *side)
{
	return &side->engine->workers[0];
}

/* Wait until each side knows the sockets of the other. */
static void await_found(const struct side *side)
{
	struct fab_worker *worker = worker_of(side);
	time_t end = time(NULL) + PATIENCE_S;
	int found = 0;

	while (!found) {
		const struct fab_peer *peer;

		CHECK(time(NULL) <= end);
		sched_yield();
		pthread_mutex_lock(&worker->lock);
		peer = fab_worker_slot(worker, side->slots[0]);
		found = peer && peer->found == 1;
		pthread_mutex_unlock(&worker->lock);
	}
}

/* Wait until the provider has taken so many connections. */
static void await_count(const struct side *side, uint32_t count)
{
	struct fab_worker *worker = worker_of(side);
	time_t end = time(NULL) + PATIENCE_S;
	uint32_t found = 0;

	while (found != count) {
		struct fab_socket *sockets;

		CHECK(time(NULL) <= end);
		sched_yield();
		pthread_mutex_lock(&worker->lock);
		CHECK(!fab_sockets_list(worker->lanes, &sockets, &found));
		pthread_mutex_unlock(&worker->lock);
		free(sockets);
	}
}

static struct fab_transfer *begin_write(const struct side *side,
					struct fab_region *local,
					const struct fab_region *remote,
					uint64_t token)
{
	struct fab_pages pages = {
		.page_bytes = PAGE,
		.count = PAGES,
		.local_index = places,
		.remote_index = places,
		.local_stride = PAGE,
		.remote_stride = PAGE,
		.local_bytes = sizeof(source),
		.remote_bytes = sizeof(target),
	};
	struct fab_transfer *transfer;
	struct fab_remote named;
	uint64_t keys[4];

	named = side_remote(remote, keys);
	CHECK(!fab_transfer_start(side->engine, side->peer,
				  FAB_TRANSFER_CONFIRM, token, token, local,
				  &named, &pages, &transfer));
	return transfer;
}

static void await_token(struct side *side, uint32_t kind, uint64_t token)
{
	struct fab_completion completion;

	side_await(side, kind, &completion);
	CHECK(completion.token == token);
	fab_error_free(completion.error);
}

static void begin_watch(const struct side *side, const struct side *lost,
			uint64_t lost_ns, uint64_t token)
{
	unsigned char address[256];
	uint32_t bytes = lost->attributes.address_bytes;

	CHECK(!fab_engine_address(lost->engine, 0, 0, address, bytes));
	CHECK(!fab_connections_await(side->engine, 0, token, lost_ns, address,
				     bytes, 1));
}

/* Wait until the peer is lost, the memory of a transfer quiet, and a watch over,
 * which is never before the loss. */
static void await_loss(struct side *side, uint64_t transfer, uint64_t watch)
{
	time_t end = time(NULL) + PATIENCE_S;
	int lost = 0, quiet = 0, ended = 0;

	while (!lost || !quiet || !ended) {
		struct fab_completion one;

		CHECK(time(NULL) <= end);
		if (!fab_engine_reap(side->engine, &one, 1)) {
			sched_yield();
			continue;
		}
		if (one.kind == FAB_PEER_FAILED) {
			CHECK(one.peer == side->peer);
			CHECK(one.status == -ETIMEDOUT);
			lost = 1;
		} else if (one.kind == FAB_TRANSFER_DONE) {
			CHECK(one.token == transfer && one.status);
			quiet = (int) one.quiet;
		} else if (one.kind == FAB_TRANSFER_QUIET) {
			quiet = 1;
		} else if (one.kind == FAB_CONNECTIONS_ENDED) {
			CHECK(lost && one.token == watch);
			ended = 1;
		}
		fab_error_free(one.error);
	}
}

static void check_write(struct side *side, struct fab_region *local,
			const struct fab_region *remote, uint64_t token)
{
	struct fab_completion completion;
	struct fab_transfer *transfer;

	memset(target, 0, sizeof(target));
	transfer = begin_write(side, local, remote, token);
	side_await(side, FAB_TRANSFER_DONE, &completion);
	CHECK(completion.token == token && !completion.status);
	CHECK(!fab_transfer_release(side->engine, transfer));
	CHECK(!memcmp(source, target, sizeof(source)));
}

/* A connection of nobody's. */
static int connect_to(const struct sockaddr_storage *address)
{
	struct timeval patience = {.tv_sec = PATIENCE_S};
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	CHECK(fd >= 0);
	CHECK(!setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience,
			  sizeof(patience)));
	CHECK(!connect(fd, (const struct sockaddr *) address,
		       sizeof(struct sockaddr_in)));
	return fd;
}

static void check_ended(int fd)
{
	char byte;
	ssize_t got = recv(fd, &byte, 1, 0);

	CHECK(got == 0 || (got < 0 && errno == ECONNRESET));
	CHECK(!close(fd));
}

static void test_places(void)
{
	unsigned char text[16] = "no address";
	struct fab_place place;

	CHECK(fab_place_read(&place, text, sizeof(text)) == -FI_EINVAL);
	CHECK(fab_place_read(&place, text, 1) == -FI_EINVAL);
}

int main(int argc, char **argv)
{
	struct fab_options options = {.peer_timeout_ns = TIMEOUT_NS,
				      .warmup = 1};
	struct side a, b, c, a_to_c;
	struct fab_region *local, *at_b, *at_c;
	struct sockaddr_storage address;
	struct fab_transfer *transfer;
	int stranger;

	CHECK(argc == 2);
	test_places();
	for (uint32_t i = 0; i < PAGES; i++)
		places[i] = i;
	for (size_t i = 0; i < sizeof(source); i++)
		source[i] = (unsigned char) (i * 7 + (i >> 10));
	side_open(&a, argv[1], &options);
	side_open(&b, argv[1], &options);
	side_open(&c, argv[1], &options);
	pair_connect_beating(&a, &b, BEAT_NS);
	a_to_c = a;
	pair_connect_beating(&a_to_c, &c, BEAT_NS);
	local = side_register(&a, source, sizeof(source), 0);
	at_b = side_register(&b, target, sizeof(target),
			     FAB_ACCESS_REMOTE_WRITE);
	at_c = side_register(&c, target, sizeof(target),
			     FAB_ACCESS_REMOTE_WRITE);
	await_found(&a);
	await_found(&b);
	await_found(&a_to_c);
	await_found(&c);

	/* A living peer's connection may stay, if it was added since; else what
	 * it carries may be older: N2. */
	begin_watch(&a, &b, 0, 1);
	await_token(&a, FAB_CONNECTIONS_ENDED, 1);
	begin_watch(&a, &b, UINT64_MAX, 4);
	check_write(&a_to_c, local, at_c, 2);

	/* What is out for a peer that falls silent comes back, and no socket of
	 * its is left. */
	pthread_mutex_lock(&worker_of(&b)->lock);
	transfer = begin_write(&a, local, at_b, 3);
	await_loss(&a, 3, 4);
	CHECK(!fab_transfer_release(a.engine, transfer));
	await_count(&a, 1);
	/* N1 */
	check_write(&a_to_c, local, at_c, 5);

	/* A connection that nobody names is cut, after a while. */
	CHECK(!fab_engine_address(a.engine, 0, 0, &address, sizeof(address)));
	stranger = connect_to(&address);
	await_count(&a, 2);
	begin_watch(&a, &b, UINT64_MAX, 6);
	await_token(&a, FAB_CONNECTIONS_ENDED, 6);
	check_ended(stranger);
	check_write(&a_to_c, local, at_c, 7);

	/* One that was never taken ends with the lane. */
	stranger = connect_to(&address);
	await_count(&a, 2);
	pthread_mutex_unlock(&worker_of(&b)->lock);
	side_close(&a);
	check_ended(stranger);
	pair_close(&b, &c);
	return 0;
}

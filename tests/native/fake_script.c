/* The test's side of fake_lane.h: what it starts, says and expects. */
#include "fake_lane.h"

#include <string.h>

struct fab_peer *fake_slot(struct fake *fake, uint32_t peer)
{
	return fake->worker->peers[peer];
}

uint32_t fake_peer_open(struct fake *fake)
{
	fi_addr_t address = fake->worker->peer_count + 100;
	uint32_t lanes = 1;
	struct fab_completion completion;

	CHECK(!fab_peer_add(fake->engine, 1, FAKE_COOKIE, &address,
			    sizeof(address), &lanes, 1));
	fake_pass(fake);
	fake_expect(fake, FAB_PEER_ADDED, &completion);
	CHECK(completion.status == 0 && completion.token == 1);
	return completion.peer;
}

void fake_attach(struct fake *fake, uint32_t peer)
{
	uint32_t slot = FAKE_REMOTE_SLOT;

	CHECK(!fab_peer_attach(fake->engine, peer, &slot, 1, FAKE_REMOTE_COOKIE,
			       0));
}

uint32_t fake_peer(struct fake *fake)
{
	uint32_t peer = fake_peer_open(fake);

	fake_attach(fake, peer);
	fake_pass(fake);
	return peer;
}

struct fab_region *fake_region(struct fake *fake, uint64_t bytes)
{
	struct fab_completion completion;
	struct fab_region *region;

	/* Nobody touches the memory: any address will do. */
	CHECK(!fab_region_register(fake->engine, 2, 1ull << 40, bytes,
				   FAB_ACCESS_REMOTE_READ |
					   FAB_ACCESS_REMOTE_WRITE,
				   FAKE_KEY, 1, &region));
	fake_pass(fake);
	fake_expect(fake, FAB_REGION_REGISTERED, &completion);
	CHECK(completion.status == 0);
	return region;
}

struct fab_remote fake_remote(void)
{
	static const uint64_t key = FAKE_KEY;

	return (struct fab_remote) {.base = 0x5000,
				    .workers = 1,
				    .keys = &key,
				    .key_count = 1};
}

struct fab_part *fake_part(const struct fab_transfer *transfer)
{
	return transfer->parts[0].part;
}

struct fab_registration *fake_registration(const struct fab_region *region)
{
	return region->parts[0];
}

struct fab_transfer *fake_start_to(struct fake *fake, uint32_t peer,
				   uint32_t flags, uint64_t sequence,
				   struct fab_region *region,
				   uint64_t page_bytes, uint64_t count,
				   const struct fab_remote *remote)
{
	struct fab_pages pages = {
		.page_bytes = page_bytes,
		.count = count,
		.local_stride = page_bytes,
		.remote_stride = page_bytes,
		.local_bytes = page_bytes * count,
		.remote_bytes = page_bytes * count,
	};
	struct fab_transfer *transfer;

	CHECK(!fab_transfer_start(fake->engine, peer, flags, sequence, sequence,
				  region, remote, &pages, &transfer));
	return transfer;
}

struct fab_transfer *fake_start(struct fake *fake, uint32_t peer,
				uint32_t flags, uint64_t sequence,
				struct fab_region *region, uint64_t page_bytes,
				uint64_t count)
{
	struct fab_remote remote = fake_remote();

	return fake_start_to(fake, peer, flags, sequence, region, page_bytes,
			     count, &remote);
}

static struct fake_event *event_add(struct fake *fake)
{
	struct fake_event *event;

	if (fake->event_count == fake->event_capacity) {
		fake->event_capacity =
			fake->event_capacity ? 2 * fake->event_capacity : 256;
		fake->events = reallocarray(fake->events, fake->event_capacity,
					    sizeof(*event));
		CHECK(fake->events);
	}
	event = &fake->events[fake->event_count++];
	memset(event, 0, sizeof(*event));
	event->ret = 1;
	return event;
}

void fake_complete(struct fake *fake, size_t i, int err)
{
	struct fake_post *post = &fake->posts[i];
	struct fake_event *event = event_add(fake);

	CHECK(!post->done);
	post->done = 1;
	if (err) {
		event->ret = -FI_EAVAIL;
		event->error.op_context = post->context;
		event->error.err = err;
		event->error.prov_errno = 77;
		return;
	}
	event->entry.op_context = post->context;
	event->entry.flags = post->kind == FAKE_SEND  ? FI_SEND | FI_MSG :
			     post->kind == FAKE_WRITE ? FI_WRITE | FI_RMA :
							FI_READ | FI_RMA;
}

void fake_complete_all(struct fake *fake, size_t first)
{
	for (size_t i = first; i < fake->post_count; i++) {
		if (!fake->posts[i].done)
			fake_complete(fake, i, 0);
	}
}

void fake_say(struct fake *fake, ssize_t ret)
{
	event_add(fake)->ret = ret;
}

void fake_immediate(struct fake *fake, uint32_t immediate)
{
	struct fake_event *event = event_add(fake);

	event->entry.flags = FI_REMOTE_CQ_DATA | FI_REMOTE_WRITE | FI_RMA;
	event->entry.data = immediate;
}

void fake_frame(struct fake *fake, uint32_t peer, uint32_t kind,
		const void *payload, uint32_t bytes)
{
	struct fab_frame_header header = {
		.magic = FAB_FRAME_MAGIC,
		.version = FAB_FRAME_VERSION,
		.kind = (uint8_t) kind,
		.peer = peer,
		.cookie = peer == FAB_NO_PEER ? 0 : FAKE_COOKIE,
	};
	struct fake_receive receive = fake->receives[0];
	struct fake_event *event = event_add(fake);

	CHECK(fake->receive_count > 0);
	fake->receive_count--;
	memmove(fake->receives, fake->receives + 1,
		fake->receive_count * sizeof(receive));
	memcpy(receive.buffer, &header, sizeof(header));
	if (bytes)
		memcpy((char *) receive.buffer + sizeof(header), payload,
		       bytes);
	event->entry.op_context = receive.context;
	event->entry.flags = FI_RECV | FI_MSG;
	event->entry.len = sizeof(header) + bytes;
}

void fake_announce(struct fake *fake, uint32_t peer,
		   const struct fab_announce *announce)
{
	fake_frame(fake, peer, FAB_FRAME_ANNOUNCE, announce, sizeof(*announce));
}

void fake_answer(struct fake *fake, uint32_t peer,
		 const struct fake_post *announced, int32_t status,
		 uint64_t counted)
{
	struct fab_confirm confirm = {
		.sequence = announced->announce.sequence,
		.counted = counted,
		.immediate = announced->announce.immediate,
		.status = status,
	};

	fake_frame(fake, peer, FAB_FRAME_CONFIRM, &confirm, sizeof(confirm));
}

size_t fake_count(const struct fake *fake, uint32_t kind, size_t first)
{
	size_t count = 0;

	for (size_t i = first; i < fake->post_count; i++)
		count += fake->posts[i].kind == kind;
	return count;
}

size_t fake_count_frames(const struct fake *fake, uint32_t kind, size_t first)
{
	size_t count = 0;

	for (size_t i = first; i < fake->post_count; i++)
		count += fake->posts[i].kind == FAKE_SEND &&
			 fake->posts[i].header.kind == kind;
	return count;
}

const struct fake_post *fake_last_frame(const struct fake *fake, uint32_t kind)
{
	for (size_t i = fake->post_count; i-- > 0;) {
		if (fake->posts[i].kind == FAKE_SEND &&
		    fake->posts[i].header.kind == kind)
			return &fake->posts[i];
	}
	CHECK(!"a frame of this kind");
	return NULL;
}

int fake_reap(struct fake *fake, struct fab_completion *completion)
{
	if (!fab_engine_reap(fake->engine, completion, 1))
		return 0;
	if (completion->error)
		CHECK(completion->error->code == completion->status);
	fab_error_free(completion->error);
	completion->error = NULL;
	return 1;
}

void fake_expect(struct fake *fake, uint32_t kind,
		 struct fab_completion *completion)
{
	if (!fake_reap(fake, completion)) {
		fprintf(stderr, "kind %u was expected, none came\n", kind);
		abort();
	}
	if (completion->kind != kind) {
		fprintf(stderr, "kind %u was expected, %u came (status %d)\n",
			kind, completion->kind, completion->status);
		abort();
	}
}

void fake_expect_none(struct fake *fake)
{
	struct fab_completion completion;

	if (!fake_reap(fake, &completion))
		return;
	fprintf(stderr, "none was expected, kind %u came (status %d)\n",
		completion.kind, completion.status);
	abort();
}

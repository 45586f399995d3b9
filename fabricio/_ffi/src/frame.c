#include "frame.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "frames are little-endian; add conversions before building here"
#endif

static_assert(sizeof(struct fab_frame_header) == 16, "wire format");
static_assert(sizeof(struct fab_announce) == 56, "wire format");
static_assert(sizeof(struct fab_confirm) == 24, "wire format");
static_assert(sizeof(struct fab_proof) == 16, "wire format");
static_assert(sizeof(struct fab_beat) == 8, "wire format");

struct fab_outgoing *fab_outgoing_alloc(uint32_t kind, uint64_t token,
					const void *head, uint32_t head_bytes,
					const void *body, uint32_t body_bytes)
{
	struct fab_outgoing *frame;

	frame = malloc(sizeof(*frame) + head_bytes + body_bytes);
	if (!frame)
		return NULL;
	memset(frame, 0, sizeof(*frame));
	frame->token = token;
	frame->kind = kind;
	frame->lane = FAB_ANY_LANE;
	frame->bytes =
		(uint32_t) sizeof(frame->header) + head_bytes + body_bytes;
	frame->header.magic = FAB_FRAME_MAGIC;
	frame->header.version = FAB_FRAME_VERSION;
	frame->header.kind = (uint8_t) kind;
	if (head_bytes)
		memcpy(frame->payload, head, head_bytes);
	if (body_bytes)
		memcpy(frame->payload + head_bytes, body, body_bytes);
	return frame;
}

/* Declarations read by cffi and included by the C sources alike: no
 * preprocessor lines in this folder. Thread marks: [loop] the one thread that
 * runs the event loop, [worker] an engine thread, [any] either. */

/* Why a call failed. Plain data, copied by value. */
struct fab_error {
	int32_t code;          /* 0, or a negative fi_errno */
	int32_t provider_code; /* the provider's own code, 0 if none */
	char call[32];         /* the libfabric call, e.g. "fi_mr_reg" */
	char text[192];        /* the provider's text, "" if none */
};

/* Text of a (positive or negative) fi_errno, e.g. "Connection refused". [any]
 */
const char *fab_strerror(int code);
/* Name of a (positive or negative) fi_errno, e.g. "FI_ECONNREFUSED". [any] */
const char *fab_errno_name(int code);

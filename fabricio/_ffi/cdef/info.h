/* One row of fi_getinfo(3), in plain C. */
struct fab_info {
	char provider[64];
	char domain[64];
	char fabric[64];
	uint64_t caps;
	uint64_t mode;
	uint64_t max_message_bytes;
	uint64_t mr_mode;
	uint32_t tx_size;
	uint32_t rx_size;
	uint32_t iov_limit;
	uint32_t rma_iov_limit;
	uint32_t inject_bytes;
	uint32_t immediate_bytes; /* domain_attr->cq_data_size */
	uint32_t key_bytes;       /* domain_attr->mr_key_size */
	uint32_t usable;          /* 1: the engine can open it */
	char refusal[128];        /* why not, "" if usable */
	char source[64];          /* source address as text, "" if none */
};

/* Version of the libfabric found at run time: major << 16 | minor. [any] */
uint32_t fab_libfabric_version(void);

/* List what fi_getinfo(3) offers for reliable datagram endpoints with RMA.
 * provider NULL: all; source NULL: any. Writes at most `capacity` rows and the
 * number that exists to *count. Returns 0 or a negative fi_errno. May take
 * long on the first call, since it loads providers: not for the loop. [any] */
int fab_info_list(const char *provider, const char *source,
		  struct fab_info *rows, uint32_t capacity, uint32_t *count);

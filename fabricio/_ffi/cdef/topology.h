/* A machine as hwloc sees it, in flat records, and the NICs of libfabric. */
struct fab_topology;

struct fab_numa_node {
	uint64_t memory_bytes;
	uint32_t node;      /* the system's number */
	uint32_t cpu_count; /* usable ones, hyperthreads included */
};

/* One usable core: its hyperthreads but the first are left out. */
struct fab_core {
	uint32_t cpu; /* the system's number */
	int32_t node; /* -1: unknown */
};

enum fab_pci_kind {
	FAB_PCI_HOST_BRIDGE = 0, /* its address fields are 0 */
	FAB_PCI_BRIDGE = 1,
	FAB_PCI_DEVICE = 2,
};

struct fab_pci {
	uint64_t link_bytes_per_s; /* 0: unknown */
	int32_t node;              /* -1: unknown, or several nodes */
	int32_t parent;            /* index of the bridge above; -1: none */
	uint32_t kind;
	uint32_t domain;
	uint32_t bus;
	uint32_t device;
	uint32_t function;
	uint32_t class_id; /* base class << 8 | subclass */
	uint32_t vendor_id;
	uint32_t device_id;
};

/* One row of fi_getinfo(3), as far as it tells where a NIC is. */
struct fab_nic {
	char provider[64];
	char domain[64];
	char fabric[64];
	char source[64]; /* source address as text if it is of IP, else "" */
	uint64_t bits_per_s; /* nic->link_attr->speed; 0: unknown */
	uint32_t is_pci;     /* 1: the next four are nic->bus_attr's */
	uint32_t pci_domain;
	uint32_t pci_bus;
	uint32_t pci_device;
	uint32_t pci_function;
	uint32_t is_down; /* 1: nic->link_attr says FI_LINK_DOWN */
	uint32_t usable;  /* 1: the engine can open it */
};

/* Read this machine (xml NULL), or what an hwloc XML text of `bytes` bytes
 * describes. hwloc trusts such a text: it may be damaged as XML, but where it
 * is XML it must be a topology that holds together. 0, or a negative fi_errno
 * with *error filled. Slow: not for the loop. [any] */
int fab_topology_open(const char *xml, uint64_t bytes,
		      struct fab_topology **topology, struct fab_error *error);
void fab_topology_close(struct fab_topology *topology);

/* 1: it is the machine that this process runs on; 0: from XML. [any] */
int fab_topology_is_local(const struct fab_topology *topology);

/* Each list: writes at most `capacity` rows and the number that exists to
 * *count. Returns 0 or a negative fi_errno. Cores are those that the calling
 * thread may run on, in hwloc's order; in a PCI list bridges come before
 * devices. [any, one at a time] */
int fab_topology_nodes(struct fab_topology *topology,
		       struct fab_numa_node *rows, uint32_t capacity,
		       uint32_t *count);
int fab_topology_cores(struct fab_topology *topology, struct fab_core *rows,
		       uint32_t capacity, uint32_t *count);
int fab_topology_pcis(struct fab_topology *topology, struct fab_pci *rows,
		      uint32_t capacity, uint32_t *count);

/* Notes are lines of ours that travel in the XML. fab_topology_note borrows
 * from the topology until it closes; NULL past the last. [any, one at a time]
 */
int fab_topology_note_add(struct fab_topology *topology, const char *note);
const char *fab_topology_note(const struct fab_topology *topology,
			      uint32_t index);

/* The topology as XML, borrowed until the next call or the close; *bytes
 * without the 0 at its end. [any, one at a time] */
int fab_topology_xml(struct fab_topology *topology, const char **xml,
		     uint64_t *bytes, struct fab_error *error);

/* NUMA node that holds the page of this address, or -1 where the system does not
 * say. Touches the page. [any] */
int32_t fab_memory_node(uint64_t address);

/* List what fi_getinfo(3) offers of one provider by its exact name, with the
 * hints that the engine opens it with: a NIC may have several rows. Rows and
 * return code as fab_info_list. [any] */
int fab_nic_list(const char *provider, struct fab_nic *rows, uint32_t capacity,
		 uint32_t *count);

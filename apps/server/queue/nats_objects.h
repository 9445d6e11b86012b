// Pictures in JetStream's object store, laid out as every NATS client knows it (a stream OBJ_<bucket>: chunks under
// $O.<bucket>.C.<nuid>, the description under $O.<bucket>.M.<name>): `nats object get` reads them. cnats 3.4 has no
// calls for it.
#pragma once
#include "server/queue/nats_client.h"

namespace danqing::server::nats {

class Objects {
 public:
  Objects(std::shared_ptr<Client> client, std::string bucket)
      : client_(std::move(client)), bucket_(std::move(bucket)) {}
  std::string stream() const { return "OBJ_" + bucket_; }
  std::string chunks(const std::string& nuid) const { return "$O." + bucket_ + ".C." + nuid; }
  std::string meta(const std::string& name) const;
  Result<void> put(const std::string& name, const std::string& bytes);
  /// None: there is no such object (any more). An object whose digest is wrong is an error.
  Result<std::optional<std::string>> get(const std::string& name);
  Result<void> remove(const std::string& name);

 private:
  std::shared_ptr<Client> client_;
  const std::string bucket_;
};

}  // namespace danqing::server::nats

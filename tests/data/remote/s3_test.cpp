#include "data/remote/s3.h"

#include "tests/data/bad_server.h"

namespace lockstep::testing::s3_test {

constexpr const char* kId = "AKIDEXAMPLE";
constexpr const char* kSecret = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";
constexpr const char* kToken = "IQoJb3JpZ2luX2VjEPT//////////wEaDmFwLX+/=";
// A key of an object with all that is encoded in an address, or not.
constexpr const char* kName = "a b+c&d=e@f:g,h$i'(j)*!;~k-_.%25\xc3\xa4.bin";

const Environment kKeys{{"AWS_ACCESS_KEY_ID", kId}, {"AWS_SECRET_ACCESS_KEY", kSecret}};

Environment with(Environment environment, const Environment& more) {
  for (const auto& [name, value] : more)
    environment[name] = value;
  return environment;
}

class S3Test : public ::testing::Test {
 protected:
  S3Test() {
    std::filesystem::create_directory(directory_ / "bucket");
    spit(directory_ / kName, "tokens");
    spit(directory_ / "plain.bin", "tokens");
  }
  void serve(const std::vector<std::string>& keys) {
    server_ = std::make_unique<BadServer>(directory_.path(), keys);
  }
  Environment environment(const Environment& more) const {
    return with(with(no_environment(), {{"AWS_ENDPOINT_URL", server_->url("s3/")}}), more);
  }
  // What the metadata service of the instance gives from now on; silent: the number of requests
  // without an answer.
  void give(const std::string& id, int expires_in, int silent = 0) const {
    spit(directory_ / "service.json", str(R"({"keys": [")", id, R"(", "b"], "expires_in": )",
                                          expires_in, R"(, "silent": )", silent, "}"));
  }
  Environment instance() const {
    return environment({{"AWS_EC2_METADATA_DISABLED", "false"},
                        {"AWS_EC2_METADATA_SERVICE_ENDPOINT", server_->host()}});
  }
  std::string read(const Environment& more, const std::string& url = "s3://plain/plain.bin") {
    Remote remote(environment(more), quick_patience());
    return RemoteReader(remote, stop_).read_all(url, 1000);
  }
  void expect_refused(const std::string& name, std::initializer_list<std::string> pins,
                      const Environment& more, const std::string& url = "s3://plain/plain.bin") {
    expect_remote_refusal<RefusedError>("data/s3", name, pins, [&] { read(more, url); });
  }

  TemporaryDirectory directory_;
  std::unique_ptr<BadServer> server_;
  std::atomic<bool> stop_ = false;
};

TEST(S3Address, is_a_bucket_and_a_key) {
  const auto address = S3Address::parse("s3://my.bucket-1/a/b c.bin");
  EXPECT_EQ(address.bucket, "my.bucket-1");
  EXPECT_EQ(address.key, "a/b c.bin");
  for (const char* wrong : {"s3://", "s3://bucket", "s3://bucket/", "s3:///key", "s3://a/key",
                            "s3://bu cket/key", "s3://.bucket/key", "s3://b@cket/key"})
    expect_refusal<DataError>("data/s3", wrong, {str(wrong, ": ")},
                              [&] { S3Address::parse(wrong); });
}

TEST(S3, addresses_of_aws) {
  const auto url = [](const Environment& more, const std::string& s3) {
    return S3(with(no_environment(), more)).request(s3).url;
  };
  EXPECT_EQ(url({}, "s3://bucket/a/b.bin"), "https://bucket.s3.us-east-1.amazonaws.com/a/b.bin");
  EXPECT_EQ(url({{"AWS_REGION", "eu-west-1"}}, "s3://my.bucket/b"),
            "https://s3.eu-west-1.amazonaws.com/my.bucket/b");
  EXPECT_EQ(url({{"AWS_DEFAULT_REGION", "cn-north-1"}}, "s3://bucket/b"),
            "https://bucket.s3.cn-north-1.amazonaws.com.cn/b");
  EXPECT_EQ(url({{"AWS_ENDPOINT_URL", "https://minio:9000/"}}, "s3://bucket/a b"),
            "https://minio:9000/bucket/a%20b");
  EXPECT_EQ(url({{"AWS_ENDPOINT_URL", "https://a"}, {"AWS_ENDPOINT_URL_S3", "https://b"}},
                "s3://bucket/k"),
            "https://b/bucket/k");
  expect_refusal<DataError>("data/s3", "an endpoint", {"AWS_ENDPOINT_URL", "\"minio\""}, [&] {
    url({{"AWS_ENDPOINT_URL", "minio"}}, "s3://b/k");
  });
}

TEST_F(S3Test, signatures_match_those_of_a_server) {
  serve({kId, kSecret});
  EXPECT_EQ(read(kKeys), "tokens");
  EXPECT_EQ(read(kKeys, str("s3://plain/", kName)), "tokens");
  EXPECT_EQ(read(with(kKeys, {{"AWS_REGION", "ap-south-2"}})), "tokens");
  EXPECT_EQ(read(kKeys, "s3://region/plain.bin"), "tokens");  // the server names another region
  EXPECT_EQ(server_->requests("s3/region/plain.bin"), 2);
  Remote remote(environment(kKeys), quick_patience());
  std::string got;
  EXPECT_TRUE(RemoteReader(remote, stop_)
                  .read("s3://cut1/plain.bin", {1, 5}, 6, false,
                        [&](std::span<const std::byte> bytes, std::int64_t) {
                          got.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
                        }));
  EXPECT_EQ(got, "oken");
  EXPECT_EQ(server_->ranges("s3/cut1/plain.bin").back(), (ByteRange{2, 5}));
}

TEST_F(S3Test, signs_a_session_token) {
  serve({kId, kSecret, kToken});
  EXPECT_EQ(read(with(kKeys, {{"AWS_SESSION_TOKEN", kToken}}), str("s3://plain/", kName)),
            "tokens");
  expect_refused("no session token", {"403", "InvalidToken"}, kKeys);
}

TEST_F(S3Test, refusals_have_advice_and_no_secret) {
  serve({kId, kSecret});
  const Environment wrong{{"AWS_ACCESS_KEY_ID", kId}, {"AWS_SECRET_ACCESS_KEY", "another-secret"}};
  expect_refused("unsigned", {"s3://plain/plain.bin: ", "403", "AccessDenied"}, {});
  expect_refused("another secret", {"SignatureDoesNotMatch"}, wrong);
  EXPECT_EQ(server_->requests("s3/plain/plain.bin"), 2);  // not tried again
  for (const auto& keys : {Environment{}, wrong})
    for (const char* hidden : {kSecret, "another-secret", kId})
      EXPECT_EQ(message_of<RefusedError>([&] { read(keys); }).find(hidden), std::string::npos);
  expect_refusal<AccessError>("data/s3", "one key of two", {"AWS_SECRET_ACCESS_KEY"}, [&] {
    read({{"AWS_ACCESS_KEY_ID", kId}});
  });
  expect_refused("no such object, unsigned", {"AccessDenied"}, {}, "s3://missing/plain.bin");
  expect_remote_refusal<DataError>("data/s3", "no such object", {"404"},
                                   [&] { read(kKeys, "s3://missing/plain.bin"); });
}

TEST_F(S3Test, public_buckets_are_read_unsigned) {
  serve({});
  EXPECT_EQ(read({}), "tokens");
}

TEST(S3, concurrent_requests_to_the_wrong_region_are_all_repeated) {
  S3 s3(no_environment());
  const std::string url = "s3://bucket/key";
  const auto one = s3.request(url), two = s3.request(url);
  HttpReply reply;
  reply.status = 301;
  reply.bucket_region = "eu-west-9";
  EXPECT_TRUE(s3.learn(url, one, reply));
  EXPECT_TRUE(s3.learn(url, two, reply));
  const auto there = s3.request(url);
  EXPECT_EQ(there.region, "eu-west-9");
  EXPECT_FALSE(s3.learn(url, there, reply));
}

TEST_F(S3Test, reads_profiles) {
  serve({kId, kSecret, kToken});
  std::filesystem::create_directory(directory_ / ".aws");
  spit(directory_ / ".aws/credentials",
       str("[default]\naws_access_key_id = somebody\n"
           "aws_secret_access_key = nothing\n# a comment\n"
           "[ lab ]\r\naws_access_key_id=",
           kId, "\r\naws_secret_access_key = ", kSecret, "\naws_session_token=", kToken, "\n"));
  spit(directory_ / ".aws/config",
       str("[profile lab]\nregion = eu-south-1\nendpoint_url = ", server_->url("s3"),
           "\ns3 =\n  max_concurrent_requests = 20\n"
           "[profile roles]\nrole_arn = arn:aws:iam::1:role/x\n"));
  Environment environment{
      {"HOME", directory_.path()}, {"AWS_PROFILE", "lab"}, {"AWS_EC2_METADATA_DISABLED", "true"}};
  Remote remote(environment, quick_patience());
  EXPECT_EQ(RemoteReader(remote, stop_).read_all("s3://plain/plain.bin", 1000), "tokens");
  EXPECT_EQ(remote.request("s3://bucket/key").region, "eu-south-1");
  environment["AWS_PROFILE"] = "absent";
  expect_refusal<DataError>("data/aws_credentials", "no such profile", {"AWS_PROFILE", "absent"},
                            [&] { AwsCredentials{environment}; });
  environment["AWS_PROFILE"] = "roles";
  expect_refusal<DataError>("data/aws_credentials", "a profile of a role", {"roles", "role_arn"},
                            [&] { AwsCredentials(environment).keys(); });
}

// The key "old" is refused from when a tool, or the service, has another one.
TEST_F(S3Test, expired_credentials_are_read_again) {
  serve({});
  std::filesystem::create_directory(directory_ / ".aws");
  const auto write = [&](const char* id) {
    spit(directory_ / ".aws/credentials",
         str("[default]\naws_access_key_id=", id, "\naws_secret_access_key=b\n"));
  };
  const Environment home{{"HOME", directory_.path()}};
  for (const bool of_instance : {false, true}) {
    write("old");
    give("old", 3600);
    Remote remote(of_instance ? instance() : environment(home), quick_patience());
    EXPECT_EQ(remote.request("s3://bucket/key").user, "old");
    write("new");
    give("new", 3600);
    EXPECT_EQ(remote.request("s3://bucket/key").user, "old");
    EXPECT_EQ(RemoteReader(remote, stop_).read_all("s3://old/plain.bin", 1000), "tokens");
    EXPECT_EQ(remote.request("s3://bucket/key").user, "new");
  }
  EXPECT_EQ(server_->requests("s3/old/plain.bin"), 4);
  expect_refused("expired keys", {"ExpiredToken"}, home, "s3://expired/plain.bin");
}

TEST_F(S3Test, credentials_renewed_by_another_thread_are_used) {
  serve({});
  AwsCredentials credentials(instance());
  give("old", 3600);
  EXPECT_EQ(credentials.keys()->id, "old");
  give("new", 3600);
  EXPECT_TRUE(credentials.renew("old"));
  EXPECT_EQ(credentials.keys()->id, "new");
  const int asked = server_->requests("latest");
  EXPECT_TRUE(credentials.renew("old"));
  EXPECT_EQ(credentials.keys()->id, "new");
  EXPECT_EQ(server_->requests("latest"), asked);
}

TEST_F(S3Test, a_failing_service_keeps_the_current_keys) {
  serve({});
  AwsCredentials credentials(instance(), std::chrono::seconds(0));
  const auto id = [&] { return credentials.keys().value_or(AwsKeys{}).id; };
  give("one", 200);  // fetched again: they expire in less than five minutes
  EXPECT_EQ(id(), "one");
  give("two", 200, /*silent=*/1);  // tried again at once
  EXPECT_EQ(id(), "two");
  give("three", 200, /*silent=*/1000);
  EXPECT_EQ(id(), "two");
  spit(directory_ / "service.json", R"({"status": 404})");  // no role any more
  EXPECT_EQ(id(), "two");
  EXPECT_EQ(credentials.source(), "the instance");
  give("three", 3600);
  EXPECT_EQ(id(), "three");
  give("four", 3600);
  EXPECT_EQ(id(), "three");
  // Where the old ones are of no use either, that is an error, and no request goes unsigned.
  EXPECT_TRUE(credentials.renew("three"));
  spit(directory_ / "service.json", R"({"status": 404})");
  expect_refusal<AccessError>("data/aws_credentials", "expired, and no role", {},
                              [&] { credentials.keys(); });
  give("four", 3600);
  EXPECT_EQ(id(), "four");
}

TEST_F(S3Test, a_failing_service_is_not_queried_for_every_request) {
  serve({});
  AwsCredentials credentials(instance(), std::chrono::hours(1));
  give("one", 200);
  EXPECT_EQ(credentials.keys()->id, "one");
  const int asked = server_->requests("latest");
  spit(directory_ / "service.json", R"({"status": 404})");
  for (int i = 0; i < 50; ++i)
    EXPECT_EQ(credentials.keys()->id, "one");
  EXPECT_EQ(server_->requests("latest"), asked);
}

TEST_F(S3Test, gets_credentials_of_the_instance_and_the_container) {
  serve({kId, kSecret, kToken});
  EXPECT_EQ(read({{"AWS_EC2_METADATA_DISABLED", "false"},
                  {"AWS_EC2_METADATA_SERVICE_ENDPOINT", server_->host() + "/"}}),
            "tokens");
  const Environment container{{"AWS_CONTAINER_CREDENTIALS_FULL_URI", server_->url("container")}};
  EXPECT_EQ(read(with(container, {{"AWS_CONTAINER_AUTHORIZATION_TOKEN", "let-me"}})), "tokens");
  spit(directory_ / "token", "let-me\n");
  EXPECT_EQ(
      read(with(container, {{"AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", directory_ / "token"}})),
      "tokens");
  expect_remote_refusal<RefusedError>("data/aws_credentials", "a container without its token",
                                      {"127.0.0.1", "403"}, [&] { read(container); });
  expect_refusal<AccessError>("data/aws_credentials", "a container elsewhere", {"192.0.2.1"}, [&] {
    read({{"AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://192.0.2.1/keys"}});
  });
}

TEST_F(S3Test, a_service_that_does_not_respond_is_not_a_data_error) {
  serve({kId, kSecret});
  const auto keys = [](const Environment& environment) { AwsCredentials(environment).keys(); };
  const auto container =
      environment({{"AWS_CONTAINER_CREDENTIALS_FULL_URI", server_->url("container")}});
  EXPECT_THROW(keys(container), RefusedError);  // 403
  spit(directory_ / "service.json", R"({"status": 503})");
  Remote remote(container, no_patience());  // one that has none reads nothing, and says the same
  expect_remote_refusal<UnreachableError>("data/aws_credentials", "a container that is busy",
                                          {"127.0.0.1", "503"},
                                          [&] { remote.request("s3://bucket/key"); });
  std::filesystem::remove(directory_ / "service.json");
  AwsCredentials of_instance(instance(), std::chrono::seconds(0));
  EXPECT_EQ(of_instance.keys()->id, kId);
  EXPECT_TRUE(of_instance.renew(kId));
  server_->end();
  EXPECT_THROW(of_instance.keys(), UnreachableError);
  EXPECT_THROW(keys(container), UnreachableError);
}

TEST(AwsCredentials, temporary_credentials_have_an_expiration) {
  const auto keys = parse_keys(R"({"AccessKeyId": "a", "SecretAccessKey": "b", "Token": "c",
                                   "Expiration": "2026-02-03T04:05:06Z"})",
                               "test");
  EXPECT_EQ(std::chrono::system_clock::to_time_t(keys.expires), 1770091506);
  // Beyond what a clock of nanoseconds counts.
  const auto never = parse_keys(R"({"AccessKeyId": "a", "SecretAccessKey": "b",
                                    "Expiration": "9999-12-31T23:59:59Z"})",
                                "test");
  EXPECT_GT(never.expires, keys.expires);
  for (const char* wrong :
       {"", "{}", R"({"AccessKeyId": "", "SecretAccessKey": "b"})",
        R"({"AccessKeyId": "a", "SecretAccessKey": "hidden", "Expiration": "hidden"})",
        R"({"AccessKeyId": "a", "SecretAccessKey": "hidden", "Token": 5})"}) {
    const auto parse = [&] { parse_keys(wrong, "test"); };
    expect_refusal<DataError>("data/aws_credentials", str("answer ", wrong), {"test: "}, parse);
    EXPECT_EQ(message_of<DataError>(parse).find("hidden"), std::string::npos);
  }
}

TEST(AwsCredentials, an_invalid_profile_is_an_error_with_its_line) {
  const std::pair<const char*, const char*> cases[] = {{"key = value\n", "file: line 1: "},
                                                       {"[a]\n\n[b\n", "file: line 3: "},
                                                       {"[a]\nhidden\n", "file: line 2: "}};
  for (const auto& [text, pin] : cases)
    expect_refusal<DataError>("data/aws_credentials", str("profile ", text), {pin},
                              [&, text = text] { parse_profiles(text, "file"); });
}

}  // namespace lockstep::testing::s3_test

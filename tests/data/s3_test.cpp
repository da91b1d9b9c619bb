#include "data/s3.h"

#include "tests/data/bad_server.h"

namespace lockstep::s3_test {

using testing::BadServer;
using testing::expect_contains;
using testing::message_of;
using testing::no_environment;
using testing::spit;

constexpr const char* kId = "AKIDEXAMPLE";
constexpr const char* kSecret = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";
constexpr const char* kToken = "IQoJb3JpZ2luX2VjEPT//////////wEaDmFwLX+/=";
// A key of an object with all that is encoded in an address, or not.
constexpr const char* kName = "a b+c&d=e@f:g,h$i'(j)*!;~k-_.%25\xc3\xa4.bin";

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
  // What the metadata service of the instance gives from now on; silent: after so many requests
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
    Remote remote(environment(more), testing::quick_patience());
    return RemoteReader(remote, stop_).read_all(url, 1000);
  }

  testing::TemporaryDirectory directory_;
  std::unique_ptr<BadServer> server_;
  std::atomic<bool> stop_ = false;
};

TEST(S3Address, is_a_bucket_and_a_key) {
  const auto address = S3Address::parse("s3://my.bucket-1/a/b c.bin");
  EXPECT_EQ(address.bucket, "my.bucket-1");
  EXPECT_EQ(address.key, "a/b c.bin");
  for (const char* wrong : {"s3://", "s3://bucket", "s3://bucket/", "s3:///key", "s3://a/key",
                            "s3://bu cket/key", "s3://.bucket/key", "s3://b@cket/key"})
    expect_contains(message_of<DataError>([&] { S3Address::parse(wrong); }),
                    "expected s3://BUCKET/KEY");
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
  expect_contains(message_of<DataError>([&] {
                    url({{"AWS_ENDPOINT_URL", "minio"}}, "s3://b/k");
                  }),
                  "expected https://HOST[:PORT]");
}

TEST_F(S3Test, signs_what_a_server_recomputes) {
  serve({kId, kSecret});
  const Environment keys{{"AWS_ACCESS_KEY_ID", kId}, {"AWS_SECRET_ACCESS_KEY", kSecret}};
  EXPECT_EQ(read(keys), "tokens");
  EXPECT_EQ(read(keys, str("s3://plain/", kName)), "tokens");
  EXPECT_EQ(read(with(keys, {{"AWS_REGION", "ap-south-2"}})), "tokens");
}

TEST_F(S3Test, signs_ranges_and_goes_on_where_they_were_cut) {
  serve({kId, kSecret});
  Remote remote(environment({{"AWS_ACCESS_KEY_ID", kId}, {"AWS_SECRET_ACCESS_KEY", kSecret}}),
                testing::quick_patience());
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
  const Environment keys{{"AWS_ACCESS_KEY_ID", kId}, {"AWS_SECRET_ACCESS_KEY", kSecret}};
  EXPECT_EQ(read(with(keys, {{"AWS_SESSION_TOKEN", kToken}}), str("s3://plain/", kName)), "tokens");
  expect_contains(message_of<DataError>([&] { read(keys); }), "InvalidToken");
}

TEST_F(S3Test, refusals_say_what_to_do_and_no_secret) {
  serve({kId, kSecret});
  const auto none = message_of<DataError>([&] { read({}); });
  expect_contains(
      none, "s3://plain/plain.bin: HTTP status 403 (AccessDenied); the request was not signed");
  const auto wrong = message_of<DataError>([&] {
    read({{"AWS_ACCESS_KEY_ID", kId}, {"AWS_SECRET_ACCESS_KEY", "another-secret"}});
  });
  expect_contains(
      wrong,
      "(SignatureDoesNotMatch); the request was signed by the credentials of the environment");
  for (const auto& text : {none, wrong})
    for (const char* hidden : {kSecret, "another-secret", kId})
      EXPECT_EQ(text.find(hidden), std::string::npos) << text;
  EXPECT_EQ(server_->requests("s3/plain/plain.bin"), 2);  // not tried again
  expect_contains(message_of<DataError>([&] {
                    read({{"AWS_ACCESS_KEY_ID", kId}});
                  }),
                  "only one is set");
}

TEST_F(S3Test, public_buckets_are_read_unsigned) {
  serve({});
  EXPECT_EQ(read({}), "tokens");
}

TEST_F(S3Test, learns_the_region_of_a_bucket) {
  serve({kId, kSecret});
  const Environment keys{{"AWS_ACCESS_KEY_ID", kId}, {"AWS_SECRET_ACCESS_KEY", kSecret}};
  EXPECT_EQ(read(keys, "s3://region/plain.bin"), "tokens");
  EXPECT_EQ(server_->requests("s3/region/plain.bin"), 2);
  expect_contains(message_of<DataError>([&] { read({}, "s3://missing/plain.bin"); }),
                  "(AccessDenied)");
  expect_contains(message_of<DataError>([&] { read(keys, "s3://missing/plain.bin"); }),
                  "HTTP status 404 (SlowDown); there is no such object");
}

TEST(S3, requests_that_went_to_the_wrong_region_together_all_go_again) {
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
       str("[default]\naws_access_key_id = nobody\n"
           "aws_secret_access_key = nothing\n# a comment\n"
           "[ lab ]\r\naws_access_key_id=",
           kId, "\r\naws_secret_access_key = ", kSecret, "\naws_session_token=", kToken, "\n"));
  spit(directory_ / ".aws/config",
       str("[profile lab]\nregion = eu-south-1\nendpoint_url = ", server_->url("s3"),
           "\ns3 =\n  max_concurrent_requests = 20\n"
           "[profile roles]\nrole_arn = arn:aws:iam::1:role/x\n"));
  Environment environment{
      {"HOME", directory_.path()}, {"AWS_PROFILE", "lab"}, {"AWS_EC2_METADATA_DISABLED", "true"}};
  Remote remote(environment, testing::quick_patience());
  EXPECT_EQ(RemoteReader(remote, stop_).read_all("s3://plain/plain.bin", 1000), "tokens");
  EXPECT_EQ(remote.request("s3://bucket/key").region, "eu-south-1");
  environment["AWS_PROFILE"] = "nobody";
  expect_contains(message_of<DataError>([&] { AwsCredentials{environment}; }),
                  "AWS_PROFILE is nobody");
  environment["AWS_PROFILE"] = "roles";
  expect_contains(message_of<DataError>([&] { AwsCredentials(environment).keys(); }),
                  "has role_arn, which is not read here; `eval");
}

// The key "old" is refused from when a tool, or the service, has another one.
TEST_F(S3Test, credentials_that_expired_are_read_again) {
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
    Remote remote(of_instance ? instance() : environment(home), testing::quick_patience());
    EXPECT_EQ(remote.request("s3://bucket/key").user, "old");
    write("new");
    give("new", 3600);
    EXPECT_EQ(remote.request("s3://bucket/key").user, "old");
    EXPECT_EQ(RemoteReader(remote, stop_).read_all("s3://old/plain.bin", 1000), "tokens");
    EXPECT_EQ(remote.request("s3://bucket/key").user, "new");
  }
  EXPECT_EQ(server_->requests("s3/old/plain.bin"), 4);
  expect_contains(message_of<DataError>([&] { read(home, "s3://expired/plain.bin"); }),
                  "(ExpiredToken); the credentials of profile default have expired");
}

TEST_F(S3Test, credentials_that_another_thread_found_anew_are_not_found_again) {
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

TEST_F(S3Test, keys_are_fetched_again_when_they_expire_in_five_minutes) {
  serve({});
  AwsCredentials credentials(instance(), std::chrono::seconds(0));
  give("one", 200);
  EXPECT_EQ(credentials.keys()->id, "one");
  give("two", 3600);
  EXPECT_EQ(credentials.keys()->id, "two");
  give("three", 3600);
  EXPECT_EQ(credentials.keys()->id, "two");
}

TEST_F(S3Test, a_service_that_fails_takes_no_keys_away) {
  serve({});
  AwsCredentials credentials(instance(), std::chrono::seconds(0));
  give("one", 200);
  EXPECT_EQ(credentials.keys()->id, "one");
  give("two", 200, /*silent=*/1);  // tried again at once
  EXPECT_EQ(credentials.keys()->id, "two");
  give("three", 200, /*silent=*/1000);
  EXPECT_EQ(credentials.keys().value_or(AwsKeys{}).id, "two");
  spit(directory_ / "service.json", R"({"status": 404})");  // no role any more
  EXPECT_EQ(credentials.keys().value_or(AwsKeys{}).id, "two");
  EXPECT_EQ(credentials.source(), "the instance");
  give("three", 3600);
  EXPECT_EQ(credentials.keys()->id, "three");
  // Where the old ones are of no use either, that is an error, and no request goes unsigned.
  EXPECT_TRUE(credentials.renew("three"));
  spit(directory_ / "service.json", R"({"status": 404})");
  expect_contains(message_of<DataError>([&] { credentials.keys(); }),
                  "the credentials for S3 have expired, and new ones cannot be had: ");
  give("four", 3600);
  EXPECT_EQ(credentials.keys()->id, "four");
}

TEST_F(S3Test, a_service_that_fails_is_not_asked_for_every_request) {
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

TEST_F(S3Test, asks_the_instance_and_the_container) {
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
  expect_contains(message_of<DataError>([&] { read(container); }),
                  "the container's credentials cannot be had from 127.0.0.1: HTTP status 403");
  expect_contains(message_of<DataError>([&] {
                    read({{"AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://192.0.2.1/keys"}});
                  }),
                  "names 192.0.2.1, expected https:// or this machine");
}

TEST_F(S3Test, a_service_that_does_not_answer_is_no_fault_of_the_data) {
  serve({kId, kSecret});
  const auto keys = [](const Environment& environment) { AwsCredentials(environment).keys(); };
  const auto container =
      environment({{"AWS_CONTAINER_CREDENTIALS_FULL_URI", server_->url("container")}});
  expect_contains(message_of<RefusedError>([&] { keys(container); }), "HTTP status 403");
  spit(directory_ / "service.json", R"({"status": 503})");
  expect_contains(message_of<UnreachableError>([&] { keys(container); }),
                  "the container's credentials cannot be had from 127.0.0.1: HTTP status 503");
  std::filesystem::remove(directory_ / "service.json");
  AwsCredentials of_instance(instance(), std::chrono::seconds(0));
  EXPECT_EQ(of_instance.keys()->id, kId);
  EXPECT_TRUE(of_instance.renew(kId));
  server_->end();
  const auto text = message_of<UnreachableError>([&] { of_instance.keys(); });
  expect_contains(text, "the credentials for S3 have expired, and new ones cannot be had: ");
  expect_contains(text, "the instance's metadata service cannot be asked");
  expect_contains(message_of<UnreachableError>([&] { keys(container); }), "the same command");
  // A remote that has none reads nothing, and says the same.
  Remote remote(container, testing::no_patience());
  EXPECT_NE(message_of<UnreachableError>([&] { remote.request("s3://bucket/key"); }), "");
}

TEST(AwsCredentials, temporary_ones_say_when_they_end) {
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
    const auto text = message_of<DataError>([&] { parse_keys(wrong, "test"); });
    expect_contains(text, "test: the answer has no AccessKeyId");
    EXPECT_EQ(text.find("hidden"), std::string::npos);
  }
}

TEST(AwsCredentials, a_profile_that_is_none_is_refused_by_line) {
  const auto text = [](const char* profile) {
    return message_of<DataError>([&] { parse_profiles(profile, "file"); });
  };
  EXPECT_EQ(text("key = value\n"), "file: line 1: expected [NAME]");
  EXPECT_EQ(text("[a]\n\n[b\n"), "file: line 3: expected [NAME]");
  EXPECT_EQ(text("[a]\nhidden\n"), "file: line 2: expected KEY = VALUE");
}

}  // namespace lockstep::s3_test

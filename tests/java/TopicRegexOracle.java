// RE2/J as Kafka's brokers use it. Lines: the pattern in hexadecimal digits of UTF-8, then names, separated by spaces
// ("-" for the empty name). Answers: "error DESCRIPTION", or a 1 or 0 for each name.
import com.google.re2j.Pattern;
import com.google.re2j.PatternSyntaxException;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;

public class TopicRegexOracle {
    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        StringBuilder out = new StringBuilder();
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ", -1);
            try {
                Pattern pattern = Pattern.compile(new String(HexFormat.of().parseHex(words[0]), StandardCharsets.UTF_8));
                out.append("matches ");
                for (int i = 1; i < words.length; i++)
                    out.append(pattern.matcher(words[i].equals("-") ? "" : words[i]).matches() ? '1' : '0');
            } catch (PatternSyntaxException e) {
                out.append("error ").append(e.getDescription());
            } catch (RuntimeException e) {
                out.append("fails ").append(e);
            }
            out.append('\n');
        }
        System.out.print(out);
    }
}
